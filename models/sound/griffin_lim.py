"""Make sound of log-mels without a vocoder, in numpy: amplitudes, then phases that fit them.

The transform of a real sound obeys strict relations between overlapping frames. The search goes
back and forth between spectra with the wanted amplitudes and spectra that some sound has; momentum
finds better phases in fewer steps.

References:
    Griffin and Lim, "Signal Estimation from Modified Short-Time Fourier Transform", 1984.
    [FGLA] Perraudin, Balazs, Søndergaard, "A Fast Griffin-Lim Algorithm", WASPAA 2013: momentum.
    Lee and Seung, "Algorithms for Non-negative Matrix Factorization", NIPS 2000: amplitudes.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.settings.audio import MelSettings
from models.sound.mel_filters import hann_window, mel_filters

ITERATIONS = 60
"""Steps of the search for phases."""

_MOMENTUM = 0.99
_UPDATES = 100
_FRAMES_AT_ONCE = 8

# Any: float32 or float64, whichever came in.
Real = NDArray[np.floating[Any]]
Spectra = NDArray[np.complexfloating[Any, Any]]


def sound_of_mel(
    log_mels: Real,
    settings: MelSettings,
    *,
    draws: np.random.Generator,
    iterations: int = ITERATIONS,
) -> Real:
    """Return sound, ``((frames - 1) * hop_size,)``, with nearly the given log-mels.

    ``log_mels`` are natural logarithms, shape ``(frames, mel)``, at least two frames, and decide
    the dtype. ``draws`` makes the first phases; ``iterations`` of 0 leaves them.
    """
    amplitudes = magnitudes_of_mel(log_mels, settings)
    turns = draws.random(amplitudes.shape, dtype=amplitudes.dtype)
    return griffin_lim(amplitudes, turns, settings, iterations=iterations)


def magnitudes_of_mel(log_mels: Real, settings: MelSettings) -> Real:
    """Return amplitudes whose channels come close to those of log-mels, shape ``(frames, bins)``.

    Multiplicative updates keep every amplitude at zero or above; it is zero outside the channels.
    """
    filters = mel_filters(settings).astype(log_mels.dtype)
    bins = np.flatnonzero(filters.any(0))
    filters = np.ascontiguousarray(filters[:, bins])
    sums = np.maximum(filters.sum(0), settings.floor)
    found: Real = np.zeros((len(log_mels), settings.bin_count), dtype=log_mels.dtype)
    # A few frames at a time stay in the cache, and no library of matrix products takes threads for
    # so little: these would wait for each other wherever other work is under way.
    for first in range(0, len(log_mels), _FRAMES_AT_ONCE):
        some = slice(first, first + _FRAMES_AT_ONCE)
        found[some, bins] = _magnitudes(np.exp(log_mels[some]) @ filters, filters, sums)
    return found


def _magnitudes(spread: Real, filters: Real, sums: Real) -> Real:
    """Return amplitudes of bins that have channels, shape ``(frames, bins)``."""
    found: Real = spread / sums**2
    for _ in range(_UPDATES):
        again = (found @ filters.T) @ filters
        np.maximum(again, 1e-30, out=again)
        found *= np.divide(spread, again, out=again)
    return found


def griffin_lim(
    amplitudes: Real, turns: Real, settings: MelSettings, *, iterations: int = ITERATIONS
) -> Real:
    """Return sound, ``((frames - 1) * hop_size,)``, with nearly these transform amplitudes.

    ``amplitudes`` have shape ``(frames, bins)``, at least two frames; ``turns`` are the first
    phases in whole turns, of the same shape, and ``iterations`` of 0 leaves them.
    """
    if iterations < 0:
        raise ValueError(f"iterations must be >= 0, got {iterations}")
    if amplitudes.shape[1] != settings.bin_count or amplitudes.shape[0] < 2:
        raise ValueError(
            f"amplitudes must have at least 2 frames and {settings.bin_count} bins, got shape "
            f"{amplitudes.shape}"
        )
    window = hann_window(settings).astype(amplitudes.dtype)
    wanted: Spectra = amplitudes * np.exp(2j * math.pi * turns).astype(_complex(amplitudes))
    before = np.zeros_like(wanted)
    for _ in range(iterations):
        possible = _transform(_sound_of(wanted, window, settings), window, settings)
        ahead = possible + amplitudes.dtype.type(_MOMENTUM) * (possible - before)
        before = possible
        # Where there is nothing, any phase will do, and 0/0 would not.
        wanted = amplitudes * ahead / np.maximum(np.abs(ahead), 1e-16)
    return _sound_of(wanted, window, settings)


def _complex(amplitudes: Real) -> type[np.complexfloating[Any, Any]]:
    return np.complex64 if amplitudes.dtype == np.float32 else np.complex128


def _transform(sound: Real, window: Real, settings: MelSettings) -> Spectra:
    """Return a centred, reflected transform, shape ``(frames, bins)``."""
    padded = np.pad(sound, settings.fft_size // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, settings.fft_size)
    found: Spectra = np.fft.rfft(frames[:: settings.hop_size] * window)
    return found


def _sound_of(spectra: Spectra, window: Real, settings: MelSettings) -> Real:
    """Return the sound whose frames come closest to the spectra's."""
    frames = np.fft.irfft(spectra, settings.fft_size) * window
    energy = np.broadcast_to(np.square(window), frames.shape)
    first = settings.fft_size // 2
    samples = slice(first, first + (len(frames) - 1) * settings.hop_size)
    sound: Real = _added_up(frames, settings)[samples] / _added_up(energy, settings)[samples]
    return sound


def _added_up(frames: Real, settings: MelSettings) -> Real:
    """Add frames up ``hop_size`` apart, shape ``(samples,)``."""
    hop, hops = settings.hop_size, -(-settings.fft_size // settings.hop_size)
    padded = np.pad(frames, ((0, 0), (0, hops * hop - settings.fft_size)))
    pieces = padded.reshape(len(frames), hops, hop)
    sound = np.zeros((len(frames) + hops - 1, hop), dtype=frames.dtype)
    for place in range(hops):
        sound[place : place + len(frames)] += pieces[:, place]
    return sound.reshape(-1)
