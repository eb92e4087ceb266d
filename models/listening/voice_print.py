"""Tell whose voice a spectrogram is, by what its loud frames are like on the whole.

It needs no network that has learnt people: a print is the mean and the deviation of each mel
cepstral coefficient over the frames that are louder than the clip's average, and a voice is that of
the person whose mean print is nearest, each entry measured in the deviation that it has among one
person's own clips. The sentence matters little to it, the room and the loudspeaker much.

References:
    [LTAS] Kinnunen, Hautamäki and Fränti, "On the use of long-term average spectrum in automatic
        speaker recognition", ISCSLP 2006.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from models.listening.mel_cepstrum import mel_cepstrum

FEWEST_CLIPS = 2
"""Clips of a person below which it is not known how much theirs differ."""

_LEAST_SPREAD = 1e-6


def voice_print(mel: Tensor) -> Tensor:
    """Return a print, float64, shape ``(26,)``, of natural log-mels, shape ``(mel, frames)``.

    Raises:
        ValueError: If there is no frame, or a value is not finite.
    """
    coefficients = mel_cepstrum(mel)
    level = mel.double().mean(0)
    loud = coefficients[:, level >= level.mean()]
    return torch.cat([loud.mean(1), loud.std(1, correction=0)])


class KnownVoices:
    """People whose clips are at hand."""

    def __init__(self, clips: Mapping[str, Sequence[Tensor]]) -> None:
        """Take log-mels by person, ``(mel, frames)`` each, at least two of each.

        Raises:
            ValueError: If there is nobody, or somebody has fewer.
        """
        few = sorted(name for name, own in clips.items() if len(own) < FEWEST_CLIPS)
        if few or not clips:
            raise ValueError(
                f"everybody must have at least {FEWEST_CLIPS} clips, got fewer of "
                f"{few or 'nobody at all'}"
            )
        prints = [torch.stack([voice_print(mel) for mel in own]) for own in clips.values()]
        self._names = tuple(clips)
        self._means = torch.stack([own.mean(0) for own in prints])
        apart = torch.cat([own - own.mean(0) for own in prints])
        self._spread = apart.square().mean(0).sqrt().clamp(min=_LEAST_SPREAD)

    def __len__(self) -> int:
        return len(self._names)

    def nearest(self, mel: Tensor) -> str:
        """Return the person whose voice it is most like, of log-mels, ``(mel, frames)``."""
        apart = (self._means - voice_print(mel)) / self._spread
        return self._names[int(apart.square().sum(1).argmin())]
