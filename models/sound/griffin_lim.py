"""Make sound from amplitudes alone, by searching for phases that fit them (Griffin-Lim).

The transform of any sound obeys strict relations between overlapping frames. The search goes back
and forth between spectra with the wanted amplitudes and spectra that some sound has; momentum
carries each step on in its direction, which finds better phases in fewer steps.

References:
    Griffin and Lim, "Signal Estimation from Modified Short-Time Fourier Transform", 1984.
    [FGLA] Perraudin, Balazs, Søndergaard, "A Fast Griffin-Lim Algorithm", WASPAA 2013.
"""

import math

import torch
from torch import Tensor

from models.settings.audio import MelSettings
from models.sound.mel import hann_window, magnitudes_of_mel, transform


def griffin_lim(
    amplitudes: Tensor,
    settings: MelSettings,
    *,
    iterations: int = 60,
    momentum: float = 0.99,
    generator: torch.Generator,
) -> Tensor:
    """Return sound whose transform has nearly the given amplitudes.

    Args:
        amplitudes: Shape ``(*batch, bins, frames)``, at least two frames.
        settings: The transform.
        iterations: Steps of the search; 0 leaves the random phases.
        momentum: α of [FGLA]; 0 is plain Griffin-Lim, values up to 1 go faster.
        generator: Draws the first phases.

    Returns:
        Shape ``(*batch, (frames - 1) * hop_size)``.

    Raises:
        ValueError: If a setting or the shape is out of range.
    """
    if iterations < 0:
        raise ValueError(f"iterations must be >= 0, got {iterations}")
    if not 0 <= momentum <= 1:
        raise ValueError(f"momentum must be in [0, 1], got {momentum}")
    if amplitudes.shape[-2] != settings.bin_count or amplitudes.shape[-1] < 2:
        raise ValueError(
            f"amplitudes must have {settings.bin_count} bins and at least 2 frames, got shape "
            f"{tuple(amplitudes.shape)}"
        )
    turns = torch.rand(
        amplitudes.shape, generator=generator, dtype=amplitudes.dtype, device=generator.device
    ).to(amplitudes.device)
    wanted = torch.polar(amplitudes, 2 * math.pi * turns)
    before = torch.zeros_like(wanted)
    for _ in range(iterations):
        possible = transform(_sound_of(wanted, settings), settings)
        ahead = possible + momentum * (possible - before)
        before = possible
        # Where there is nothing, any phase will do, and 0/0 would not.
        wanted = amplitudes * ahead / ahead.abs().clamp(min=1e-16)
    return _sound_of(wanted, settings)


def sound_of_mel(
    mel: Tensor, settings: MelSettings, *, iterations: int = 60, generator: torch.Generator
) -> Tensor:
    """Return sound with nearly the given log-mel spectrogram.

    Args:
        mel: Natural logarithms, shape ``(*batch, mel, frames)``, at least two frames.
        settings: The transform and the channels.
        iterations: Steps of the search for phases.
        generator: Draws the first phases.

    Returns:
        Shape ``(*batch, (frames - 1) * hop_size)``.
    """
    return griffin_lim(
        magnitudes_of_mel(mel, settings), settings, iterations=iterations, generator=generator
    )


def spectral_convergence(amplitudes: Tensor, samples: Tensor, settings: MelSettings) -> float:
    """Return how far a sound's amplitudes are from the wanted ones; 0 is equal.

    The L2 norm of the difference over that of the wanted amplitudes, shape ``(bins, frames)``.
    """
    difference = transform(samples, settings).abs() - amplitudes
    return float(difference.norm() / amplitudes.norm())


def _sound_of(spectrum: Tensor, settings: MelSettings) -> Tensor:
    return torch.istft(
        spectrum,
        settings.fft_size,
        settings.hop_size,
        settings.window_size,
        hann_window(settings, spectrum.real),
        center=True,
    )
