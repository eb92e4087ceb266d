"""Turn sound into log-mel spectrograms.

The spectrogram is librosa's to 1e-6: magnitudes of a centred, reflected short-time Fourier
transform, Slaney's mel scale with channels of equal area, natural logarithm.

References:
    [HiFi-GAN] Kong et al., NeurIPS 2020, arXiv:2010.05646: the settings that vocoders share.
"""

import torch
from torch import Tensor

from models.settings.audio import MelSettings
from models.sound.mel_filters import mel_filters


class SoundError(ValueError):
    """Raised when sound cannot be used; says what is wrong with it and what to do."""


def magnitudes(samples: Tensor, settings: MelSettings) -> Tensor:
    """Return transform amplitudes, ``(*batch, bins, 1 + samples // hop_size)``, of samples.

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
    """Return the complex transform whose absolute values are `magnitudes`."""
    return torch.stft(
        samples,
        settings.fft_size,
        settings.hop_size,
        settings.window_size,
        torch.hann_window(settings.window_size, dtype=samples.dtype, device=samples.device),
        center=True,
        pad_mode="reflect",
        return_complex=True,
    )


def log_mel(samples: Tensor, settings: MelSettings) -> Tensor:
    """Return the log-mel spectrogram, ``(*batch, mel, frames)``, in the samples' own precision.

    Samples are mono in [-1, 1]; the result is natural logarithms, at least ln(floor).
    """
    filters = torch.from_numpy(mel_filters(settings)).to(samples)
    return (filters @ magnitudes(samples, settings)).clamp(min=settings.floor).log()


def frame_count(sample_count: int, settings: MelSettings) -> int:
    """Return the frames of so many samples."""
    return 1 + sample_count // settings.hop_size
