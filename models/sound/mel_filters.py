"""The window and the triangles of mel spectrograms, in numpy, for training and devices alike.

References:
    Slaney, "Auditory Toolbox", Technical Report 1998-010, Interval Research, 1998: the mel scale.
"""

import math

import numpy as np
from numpy.typing import NDArray

from models.settings.audio import MelSettings

# Slaney's scale is linear up to 1 kHz (15 mels), then logarithmic: 27 mels for a factor of 6.4.
_LINEAR_HZ = 200 / 3
_BREAK_HZ = 1000.0
_BREAK_MEL = _BREAK_HZ / _LINEAR_HZ
_MELS_PER_LOG = 27.0 / math.log(6.4)


def mel_filters(settings: MelSettings) -> NDArray[np.float64]:
    """Return the triangles that gather frequencies into channels, shape ``(mel, bins)``.

    Neighbours share their corners; each has an area of one in hertz (Slaney's normalisation).
    """
    bins = np.linspace(0, settings.sample_rate_hz / 2, settings.bin_count)
    lowest, highest = _mel(settings.lowest_hz), _mel(settings.highest_hz)
    corners = _hertz(np.linspace(lowest, highest, settings.mel_count + 2))[:, np.newaxis]
    low, centre, high = corners[:-2], corners[1:-1], corners[2:]
    rising, falling = (bins - low) / (centre - low), (high - bins) / (high - centre)
    return np.maximum(np.minimum(rising, falling), 0) * (2 / (high - low))


def mean_spread(settings: MelSettings) -> NDArray[np.float64]:
    """Return the matrix that turns channels into amplitudes, shape ``(mel, bins)``.

    A channel over the sum of its triangle is the mean amplitude under it. A frequency gets the mean
    of its channels, weighted by their triangles there; 0 where no triangle reaches.
    """
    filters = mel_filters(settings)
    at_frequency, of_channel = filters.sum(0), filters.sum(1, keepdims=True)
    shares: NDArray[np.float64] = filters / np.where(at_frequency > 0, at_frequency, 1)
    return shares / np.where(of_channel > 0, of_channel, 1)


def hann_window(settings: MelSettings) -> NDArray[np.float64]:
    """Return the window in the middle of a transform, shape ``(fft_size,)``."""
    size, missing = settings.window_size, settings.fft_size - settings.window_size
    window = 0.5 - 0.5 * np.cos(2 * math.pi / size * np.arange(size))
    return np.pad(window, (missing // 2, missing - missing // 2))


def _mel(hertz: float) -> float:
    if hertz < _BREAK_HZ:
        return hertz / _LINEAR_HZ
    return _BREAK_MEL + _MELS_PER_LOG * math.log(hertz / _BREAK_HZ)


def _hertz(mels: NDArray[np.float64]) -> NDArray[np.float64]:
    above = _BREAK_HZ * np.exp((np.maximum(mels, _BREAK_MEL) - _BREAK_MEL) / _MELS_PER_LOG)
    return np.where(mels < _BREAK_MEL, mels * _LINEAR_HZ, above)
