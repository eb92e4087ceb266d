"""Turn sound into log-mel spectrograms, and back into amplitudes of frequencies.

The spectrogram is librosa's to 1e-6: magnitudes of a centred, reflected short-time Fourier
transform, Slaney's mel scale with channels of equal area, natural logarithm.

References:
    Slaney, "Auditory Toolbox", Technical Report 1998-010, Interval Research, 1998: the mel scale.
    [HiFi-GAN] Kong et al., NeurIPS 2020, arXiv:2010.05646: the settings that vocoders share.
"""

import torch
from torch import Tensor

from models.settings.audio import MelSettings

# Slaney's scale is linear up to 1 kHz (15 mels), then logarithmic: 27 mels for a factor of 6.4.
_LINEAR_HZ = 200 / 3
_BREAK_HZ = 1000.0
_BREAK_MEL = _BREAK_HZ / _LINEAR_HZ
_LOG_STEP = 27.0
_LOG_FACTOR = 6.4

_UPDATES = 100


class SoundError(ValueError):
    """Raised when sound cannot be used; says what is wrong with it and what to do."""


def hann_window(settings: MelSettings, like: Tensor) -> Tensor:
    """Return the window of a transform, shape ``(window_size,)``, on ``like``'s device."""
    return torch.hann_window(settings.window_size, dtype=like.dtype, device=like.device)


def magnitudes(samples: Tensor, settings: MelSettings) -> Tensor:
    """Return amplitudes of a short-time Fourier transform.

    Args:
        samples: Mono sound, shape ``(*batch, samples)``; floating point.
        settings: The transform.

    Returns:
        Shape ``(*batch, bins, frames)`` with ``1 + samples // hop_size`` frames.

    Raises:
        SoundError: If there are not more samples than half a transform: reflection needs them.
    """
    least = settings.fft_size // 2 + 1
    if samples.shape[-1] < least:
        raise SoundError(
            f"sound must have at least {least} samples ({least / settings.sample_rate_hz:.3f} s), "
            f"got {samples.shape[-1]}"
        )
    return transform(samples, settings).abs()


def transform(samples: Tensor, settings: MelSettings) -> Tensor:
    """Return the complex transform that `magnitudes` measures, same shapes."""
    return torch.stft(
        samples,
        settings.fft_size,
        settings.hop_size,
        settings.window_size,
        hann_window(settings, samples),
        center=True,
        pad_mode="reflect",
        return_complex=True,
    )


def log_mel(samples: Tensor, settings: MelSettings) -> Tensor:
    """Return the log-mel spectrogram, computed in the samples' own precision.

    Args:
        samples: Mono sound in [-1, 1], shape ``(*batch, samples)``.
        settings: The transform and the channels.

    Returns:
        Natural logarithms, at least ln(floor), shape ``(*batch, mel, frames)``.

    Raises:
        SoundError: As `magnitudes`.
    """
    filters = mel_filters(settings).to(samples)
    return (filters @ magnitudes(samples, settings)).clamp(min=settings.floor).log()


def mel_filters(settings: MelSettings) -> Tensor:
    """Return the triangles that gather frequencies into channels.

    Neighbouring triangles share their corners; each has an area of one, in
    hertz (Slaney's normalisation).

    Returns:
        Float64, shape ``(mel, bins)``.
    """
    bins = torch.linspace(0, settings.sample_rate_hz / 2, settings.bin_count, dtype=torch.float64)
    lowest, highest = hz_to_mel(
        torch.tensor([settings.lowest_hz, settings.highest_hz], dtype=torch.float64)
    ).tolist()
    mels = torch.linspace(lowest, highest, settings.mel_count + 2, dtype=torch.float64)
    corners = mel_to_hz(mels)
    low, centre, high = (corners[first : first + settings.mel_count, None] for first in range(3))
    rising = (bins - low) / (centre - low)
    falling = (high - bins) / (high - centre)
    return torch.minimum(rising, falling).clamp(min=0) * (2 / (high - low))


def hz_to_mel(hertz: Tensor) -> Tensor:
    """Return Slaney's mels of frequencies, same shape."""
    above = _BREAK_MEL + _LOG_STEP * torch.log(hertz.clamp(min=_BREAK_HZ) / _BREAK_HZ) / torch.log(
        torch.tensor(_LOG_FACTOR, dtype=hertz.dtype)
    )
    return torch.where(hertz < _BREAK_HZ, hertz / _LINEAR_HZ, above)


def mel_to_hz(mels: Tensor) -> Tensor:
    """Return the frequencies of Slaney's mels, same shape."""
    above = _BREAK_HZ * _LOG_FACTOR ** ((mels.clamp(min=_BREAK_MEL) - _BREAK_MEL) / _LOG_STEP)
    return torch.where(mels < _BREAK_MEL, mels * _LINEAR_HZ, above)


def magnitudes_of_mel(mel: Tensor, settings: MelSettings) -> Tensor:
    """Return amplitudes whose channels come close to those of a log-mel spectrogram.

    Fewer channels than frequencies leave many answers; this one starts from the transposed
    filters, which spread a channel over its triangle, and follows multiplicative updates, which
    keep every amplitude at zero or above.

    Args:
        mel: Natural logarithms, shape ``(*batch, mel, frames)``.
        settings: The transform and the channels.

    Returns:
        Shape ``(*batch, bins, frames)``; zero outside the channels.

    References:
        Lee and Seung, "Algorithms for Non-negative Matrix Factorization", NIPS 2000.
    """
    filters = mel_filters(settings).to(mel)
    channels = mel.exp()
    spread = filters.T @ channels
    found = spread / filters.sum(0).clamp(min=settings.floor)[:, None] ** 2
    for _ in range(_UPDATES):
        found = found * spread / (filters.T @ (filters @ found)).clamp(min=1e-30)
    return found


def frame_count(sample_count: int, settings: MelSettings) -> int:
    """Return the frames of so many samples."""
    return 1 + sample_count // settings.hop_size
