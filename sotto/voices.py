"""An exported voice in this process, and the sound that it makes: no torch."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from export.commands.open_bundles import OpenVoice
from export.speaking.sound_file import check_format, encode_sound, format_of
from privacy.foundation.atomic_files import write_atomically


@dataclass(frozen=True, kw_only=True)
class Sound:
    """A text as it was said.

    Attributes:
        samples: float32 in [-1, 1], shape ``(samples,)``.
        sample_rate_hz: Samples a second.
        has_ended: Whether every sentence ended by itself; False if one was cut off.
    """

    samples: NDArray[np.float32]
    sample_rate_hz: int
    has_ended: bool

    @property
    def seconds(self) -> float:
        """Return how long it sounds, in seconds."""
        return len(self.samples) / self.sample_rate_hz

    def save(self, path: str | Path) -> Path:
        """Write or replace a .wav, .flac, .mp3 or .ogg file; SoundFormatError if it cannot be."""
        path = Path(path)
        wanted = format_of(path)
        check_format(wanted, self.sample_rate_hz)
        write_atomically(path, encode_sound(self.samples, self.sample_rate_hz, wanted))
        return path

    def _repr_html_(self) -> str:
        """Return a player for a notebook."""
        encoded = base64.b64encode(encode_sound(self.samples, self.sample_rate_hz, "wav")).decode()
        return f'<audio controls src="data:audio/wav;base64,{encoded}"></audio>'

    def __repr__(self) -> str:
        return f"Sound({self.seconds:.2f} s at {self.sample_rate_hz} Hz)"


class Voice:
    """A voice's bundle that says texts; ``load`` opens one."""

    def __init__(self, opened: OpenVoice) -> None:
        self._opened = opened

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        person: str | Path | None = None,
        authority: str | Path | None = None,
    ) -> Self:
        """Open a bundle; arguments and errors are those of ``Keyboard.load``.

        Without a person it is the voice of nobody in particular.
        """
        return cls(
            OpenVoice(
                Path(path),
                person=None if person is None else Path(person),
                authority=None if authority is None else Path(authority),
            )
        )

    def say(
        self,
        text: str,
        *,
        speed: float = 1.0,
        seed: int | None = None,
        longest_s: float | None = None,
    ) -> Sound:
        """Say a text.

        Args:
            text: Sentences in the voice's language.
            speed: 0.25 to 4 times as fast as the voice learnt to speak, at the same pitch.
            seed: Equal seeds give equal sound; None draws one.
            longest_s: Seconds at speed 1 after which a sentence is cut off; None for 2, and a
                quarter of one for each character.

        Raises:
            ValueError: If the text cannot be said, or a value is out of its range.
        """
        voice = self._opened.voice
        said = list(voice.speak(text, speed=speed, seed=seed, longest_s=longest_s))
        return Sound(
            samples=np.concatenate([one.sound for one in said]),
            sample_rate_hz=voice.sample_rate_hz,
            has_ended=all(one.has_ended for one in said),
        )

    def __repr__(self) -> str:
        manifest = self._opened.manifest
        return f"Voice(run {manifest.run[:8]}, round {manifest.round_number})"
