"""Measure how different two sounds are, by their amplitudes at several resolutions.

References:
    [PWG] Yamamoto, Song, Kim, "Parallel WaveGAN", ICASSP 2020, arXiv:1910.11480, section 2.2:
        spectral convergence and log amplitudes over several transforms.
    [HiFi-GAN] Kong et al., NeurIPS 2020, arXiv:2010.05646, section 2.3: L1 of log-mels.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from models.settings.audio import MelSettings
from models.sound.mel import log_mel

FFT_SIZES = (512, 1024, 2048)
"""Sizes of the transforms; each hops by a quarter of itself."""

AMPLITUDE_FLOOR = 1e-3
"""Smaller amplitudes count as this. A tone of full scale has 512 in the longest transform, 114 dB
above: nothing that is heard is lost, and silence has a logarithm."""


class SpectralDistance(NamedTuple):
    """The difference of two sounds, one value a sound, shape ``(batch,)``; 0 is none.

    Attributes:
        convergence: L2 norm of the difference of amplitudes over that of the right ones, mean over
            the transforms.
        log_amplitude: Mean absolute difference of log amplitudes, in nats, likewise.
        mel: Mean absolute difference of the log-mel spectrograms, in nats.
    """

    convergence: Tensor
    log_amplitude: Tensor
    mel: Tensor

    @property
    def total(self) -> Tensor:
        """Return their sum, shape ``(batch,)``."""
        return self.convergence + self.log_amplitude + self.mel


def spectral_distance(made: Tensor, right: Tensor, settings: MelSettings) -> SpectralDistance:
    """Return how far sounds, ``(batch, samples)``, are from the right ones of the same shape.

    Raises:
        SoundError: If the sounds are shorter than half a transform of the settings.
        ValueError: If the shapes differ, or the sounds have at most 1,024 samples.
    """
    least = max(FFT_SIZES) // 2 + 1
    if made.shape != right.shape or made.ndim != 2 or made.shape[1] < least:
        raise ValueError(
            f"sounds must have one shape (batch, samples >= {least}), got {tuple(made.shape)} and "
            f"{tuple(right.shape)}"
        )
    convergences, logs = [], []
    for fft_size in FFT_SIZES:
        found, wanted = _amplitudes(made, fft_size), _amplitudes(right, fft_size)
        convergences.append(_norm(found - wanted) / _norm(wanted))
        logs.append((found.log() - wanted.log()).abs().mean((1, 2)))
    mel = (log_mel(made, settings) - log_mel(right, settings)).abs().mean((1, 2))
    return SpectralDistance(torch.stack(convergences).mean(0), torch.stack(logs).mean(0), mel)


def _norm(values: Tensor) -> Tensor:
    """Return the L2 norm of each sound's values, shape ``(batch,)``."""
    norms: Tensor = torch.linalg.vector_norm(values, dim=(1, 2))
    return norms


def _amplitudes(samples: Tensor, fft_size: int) -> Tensor:
    """Return amplitudes, at least ``AMPLITUDE_FLOOR``, shape ``(batch, bins, frames)``."""
    window = torch.hann_window(fft_size, dtype=samples.dtype, device=samples.device)
    spectra = torch.stft(samples, fft_size, fft_size // 4, window=window, return_complex=True)
    return spectra.abs().clamp(min=AMPLITUDE_FLOOR)
