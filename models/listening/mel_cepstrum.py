"""Measure how far one voice's sound is from another's saying the same: mel-cepstral distortion.

References:
    [MCD] Kubichek, "Mel-cepstral distance measure for objective speech quality assessment", 1993.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from models.listening.time_warping import WarpingPath, warp

COEFFICIENT_COUNT = 13
_DECIBELS = 10 * math.sqrt(2) / math.log(10)


class Distortion(NamedTuple):
    """The differences of two spectrograms.

    Attributes:
        decibels: The distortion.
        path: Which frames were compared.
    """

    decibels: float
    path: WarpingPath


def mel_cepstrum(mel: Tensor) -> Tensor:
    """Return the first 13 coefficients of each frame's cosine series, float64, ``(13, frames)``.

    With K channels, a frame is m[k] = sum over d of c[d] cos(πd(k + ½)/K), d from 0 to K - 1; so
    c[d] = (2/K) sum over k of m[k] cos(πd(k + ½)/K) for d >= 1. c[0], the frame's mean, says how
    loud it is and is left out; c[1] to c[13] are the shape of the spectrum. ``mel`` holds finite
    natural logarithms, shape ``(mel, frames)``, of more than 13 channels.
    """
    if mel.ndim != 2 or mel.shape[0] <= COEFFICIENT_COUNT or not mel.shape[1]:
        raise ValueError(
            f"a spectrogram must have more than {COEFFICIENT_COUNT} channels and a frame at least, "
            f"got shape {tuple(mel.shape)}"
        )
    if not torch.isfinite(mel).all():
        bad = int((~torch.isfinite(mel)).sum())
        raise ValueError(f"a spectrogram must be finite, got {bad} values that are not")
    channels = len(mel)
    order = torch.arange(1, COEFFICIENT_COUNT + 1, dtype=torch.float64)[:, None]
    places = torch.arange(channels, dtype=torch.float64) + 0.5
    return (2 / channels) * torch.cos(math.pi / channels * order * places) @ mel.double()


def mel_cepstral_distortion(reference: Tensor, spoken: Tensor) -> Distortion:
    """Compare two spectrograms, natural logarithms, ``(mel, frames)``, that may differ in speed.

    Frames are paired by `models.listening.time_warping.warp` on the Euclidean distance of c[1] to
    c[13]. The distortion is the mean over the P pairs of the path (not over frames) of (10/ln 10)
    sqrt(2 sum of (c[d] - c'[d])^2), in decibels. With all coefficients that would be the root mean
    square, over channels, of the difference in decibels of amplitude, level left out. Silence
    counts like everything else.
    """
    if len(reference) != len(spoken):
        raise ValueError(
            f"spectrograms must have the same channels, got {len(reference)} and {len(spoken)}"
        )
    distances = torch.cdist(
        mel_cepstrum(reference).T.contiguous(),
        mel_cepstrum(spoken).T.contiguous(),
        # The quick way rounds, and equal frames would not be at zero.
        compute_mode="donot_use_mm_for_euclid_dist",
    )
    path = warp(distances)
    return Distortion(_DECIBELS * float(distances[path.first, path.second].mean()), path)
