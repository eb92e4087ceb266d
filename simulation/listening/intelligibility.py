"""How well speech can be understood and how clean it sounds, by published measures of two sounds.

Both compare sample with sample, so speech of another speed is first brought to the reference's.

References:
    [STOI] Taal, Hendriks, Heusdens, Jensen, "An Algorithm for Intelligibility Prediction of
        Time-Frequency Weighted Noisy Speech", IEEE Transactions on Audio, Speech, and Language
        Processing, 2011.
    [PESQ] ITU-T P.862.2, "Wideband extension to Recommendation P.862", 2007.
"""

import importlib
import warnings
from types import ModuleType

import torch
from torch import Tensor

from models.sound.mel import SoundError
from models.sound.waveform import resample

_PESQ_HZ = 16_000


class MissingMeasureError(RuntimeError):
    """Raised when a measure needs a package that is not installed; says which, and the remedy."""


def stoi(reference: Tensor, spoken: Tensor, sample_rate_hz: int) -> float:
    """Return the short-time objective intelligibility, up to 1 for the reference itself.

    Both sounds are mono, in time with each other, shape ``(samples,)``. Frames 40 dB below the
    reference's loudest are left out, and some 0.4 s must be left.

    Raises:
        MissingMeasureError: If pystoi is missing.
        SoundError: If the two do not fit, are silent, or too short.
    """
    _check(reference, spoken)
    try:
        measure = importlib.import_module("pystoi").stoi
    except ModuleNotFoundError as error:
        raise MissingMeasureError(
            f"STOI needs pystoi: {error.name} is missing; install sotto[listening]"
        ) from None

    # For too little speech pystoi warns, and returns 1e-5 as if that were a measurement.
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            found = measure(reference.double().numpy(), spoken.double().numpy(), sample_rate_hz)
        except RuntimeWarning:
            raise SoundError(
                f"STOI needs 0.4 s of speech, got {len(reference) / sample_rate_hz:.2f} s with its "
                "pauses"
            ) from None
    return float(found)


def pesq(reference: Tensor, spoken: Tensor, sample_rate_hz: int) -> float:
    """Return the perceived quality from 1.04 to 4.64 (wideband), at 16 kHz.

    Both sounds are mono, at the same given rate, shape ``(samples,)``.

    Raises:
        MissingMeasureError: If pesq is missing.
        SoundError: If the two do not fit, are silent, or no speech is found.
    """
    _check(reference, spoken)
    package = _pesq_package()
    narrow = [resample(sound.float(), sample_rate_hz, _PESQ_HZ) for sound in (reference, spoken)]
    try:
        return float(package.pesq(_PESQ_HZ, narrow[0].numpy(), narrow[1].numpy(), "wb"))
    except package.PesqError as error:
        raise SoundError(f"PESQ cannot compare the sounds: {error}") from None


def _check(reference: Tensor, spoken: Tensor) -> None:
    if reference.ndim != 1 or reference.shape != spoken.shape:
        raise SoundError(
            "sounds must be mono and as long as each other, got shapes "
            f"{tuple(reference.shape)} and {tuple(spoken.shape)}"
        )
    for name, sound in (("reference", reference), ("spoken", spoken)):
        if not torch.isfinite(sound).all():
            raise SoundError(f"the {name} sound must be finite, got samples that are not")
        if not bool(sound.any()):
            raise SoundError(f"the {name} sound must not be silent")


def _pesq_package() -> ModuleType:
    try:
        return importlib.import_module("pesq")
    except ModuleNotFoundError as error:
        raise MissingMeasureError(
            f"PESQ needs pesq: {error.name} is missing; pip install pesq, which needs a C compiler "
            "and ITU's licence"
        ) from None
