"""The voices that can be listened to: those under test, a ceiling and two floors.

The ceiling is the real clip, and its copy from its own spectrogram by the same vocoder: no voice
with this vocoder should be nearer to the clip, nor easier to recognise, except by pitch, which is
compared only in frames that both have voiced. The floors are the same speaker saying something
else, and a sound of the clip's length whose spectrum never changes. A voice that does not beat both
does not speak.
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
    """An utterance.

    Attributes:
        mel: Natural logarithms, shape ``(mel, frames)``.
        sound: Shape ``(samples,)``; None leaves it to a vocoder.
        attention: Where each head looked in the text, shape ``(heads, steps, text)``, or None.
        has_ended: Whether a stop ended it, not a limit; None if it needs none.
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
    """The people who came after training: the voice fitted to them, and their held-out clips."""

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
