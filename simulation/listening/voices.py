"""The voices that can be listened to: what they say, and those that every voice is held against.

Above stand the real clip itself and its copy, made from its own spectrogram by the same vocoder:
no voice with this vocoder is expected to be nearer to the clip, nor easier to recognise (pitch
alone may be, which is compared in the frames that both have voiced). Below stand the same speaker
saying something else, and a sound as long as the clip whose spectrum never changes: whatever does
not beat both does not speak.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from edge_client.datasets.speech_set import Clip
from models.settings.audio import MelSettings
from models.sound.griffin_lim import griffin_lim, magnitudes_of_mel
from simulation.listening.corpus import Corpus, Real
from simulation.listening.defaults import GRIFFIN_LIM_ITERATIONS

Vocoder = Callable[[Tensor], Tensor]
"""Makes sound, shape ``(samples,)``, of a log-mel spectrogram, shape ``(mel, frames)``."""

Kind = Literal["reference", "ceiling", "voice", "floor"]

_SEED = 1


@dataclass(frozen=True)
class Utterance:
    """An utterance: text, sound and spectrogram.

    Attributes:
        mel: Natural logarithms, shape ``(mel, frames)``.
        sound: Where there is sound already, shape ``(samples,)``; else a vocoder makes it.
        attention: Where each head looked in the text, shape ``(heads, steps, text)``; None for
            whoever has none.
        has_ended: Whether a stop ended it, not a limit; None for whoever need not stop.
    """

    mel: Tensor
    sound: Tensor | None = None
    attention: Tensor | None = None
    has_ended: bool | None = None


class Voice(Protocol):
    """A voice that says the text of a real clip."""

    @property
    def name(self) -> str:
        """Return what tables and folders call it."""

    @property
    def kind(self) -> Kind:
        """Return what it is in a table."""

    def say(self, real: Real) -> Utterance:
        """Say it; of the clip a voice under test may use the text and the speaker's name alone."""


@dataclass(frozen=True)
class GriffinLim:
    """Sound by Griffin-Lim, the same for the same spectrogram."""

    mel: MelSettings
    iterations: int = GRIFFIN_LIM_ITERATIONS

    def __call__(self, mel: Tensor) -> Tensor:
        """Return sound, shape ``((frames - 1) * hop_size,)``."""
        generator = torch.Generator().manual_seed(_SEED)
        turns = torch.rand(self.mel.bin_count, mel.shape[1], generator=generator).t().numpy()
        amplitudes = magnitudes_of_mel(mel.float().t().cpu().numpy(), self.mel)
        return torch.from_numpy(
            griffin_lim(amplitudes, turns, self.mel, iterations=self.iterations)
        )


@dataclass(frozen=True)
class RealClip:
    """The clip itself: what is left of an error is the measure's own."""

    name: str = "real clip"
    kind: Kind = "reference"

    def say(self, real: Real) -> Utterance:
        """Return the clip."""
        return Utterance(real.mel, real.sound)


@dataclass(frozen=True)
class CopySynthesis:
    """The clip made again from its own spectrogram."""

    name: str = "copy synthesis"
    kind: Kind = "ceiling"

    def say(self, real: Real) -> Utterance:
        """Return the clip's spectrogram."""
        return Utterance(real.mel)


@dataclass(frozen=True)
class OtherSentence:
    """Another sentence of the same speaker: the next held-out clip of theirs."""

    corpus: Corpus
    name: str = "other sentence"
    kind: Kind = "floor"

    def say(self, real: Real) -> Utterance:
        """Return the other clip's spectrogram."""
        other = _next_of(real.clip, self.corpus.held_out) or _next_of(real.clip, self.corpus.train)
        if other is None:
            raise ValueError(
                f"{real.clip.speaker} must have another clip with another text to be held "
                "against, got none"
            )
        return Utterance(self.corpus.read(other).mel)


@dataclass(frozen=True)
class MeanSpectrum:
    """The clip's mean spectrum, hummed for as long as the clip lasts."""

    name: str = "mean spectrum"
    kind: Kind = "floor"

    def say(self, real: Real) -> Utterance:
        """Return the mean frame, over and over."""
        return Utterance(real.mel.mean(1, keepdim=True).expand_as(real.mel).contiguous())


@dataclass(frozen=True)
class Newcomers:
    """The people who came when a voice was finished, with the voice as it was fitted to them.

    Attributes:
        corpus: The data set whose held-out clips are all theirs.
    """

    voice: Voice
    corpus: Corpus


def _next_of(clip: Clip, clips: Sequence[Clip]) -> Clip | None:
    """Return the speaker's next clip after this one, or their first, with another text."""
    own = [other for other in clips if other.speaker == clip.speaker]
    start = next((place for place, other in enumerate(own) if other.name == clip.name), -1) + 1
    for other in own[start:] + own[:start]:
        if other.text != clip.text:
            return other
    return None
