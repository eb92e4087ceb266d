"""Turn spectra into sound: the inverse short-time Fourier transform, by FFT or as a matrix product.

Both give the same samples. The FFT is what training uses; the product is made of operations that
an ONNX graph has, and of real numbers alone.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.settings.audio import MelSettings

Method = Literal["fft", "matrix"]


class InverseTransform(nn.Module):
    """Undo `models.sound.mel.transform`; holds no parameter and nothing that travels."""

    synthesis: Tensor
    window: Tensor

    def __init__(self, settings: MelSettings, method: Method = "fft") -> None:
        """Prepare the window, and for ``matrix`` the waves of all frequencies under it."""
        super().__init__()
        self._fft_size = settings.fft_size
        self._hop_size = settings.hop_size
        self._method = method
        window = _padded_window(settings)
        self.register_buffer("window", window.float(), persistent=False)
        if method == "matrix":
            waves = (_waves(settings.fft_size) * window).float()
            self.register_buffer("synthesis", waves, persistent=False)

    def forward(self, real: Tensor, imaginary: Tensor) -> Tensor:
        """Return the sound whose overlapping frames come closest to the spectra's.

        Args:
            real: Shape ``(batch, frames, bins)``.
            imaginary: The same shape; of the lowest and the highest frequency it is not used.

        Returns:
            Shape ``(batch, (frames - 1) * hop_size)``.
        """
        if self._method == "matrix":
            windowed = torch.cat([real, imaginary], dim=-1) @ self.synthesis
        else:
            spectra = torch.complex(real, imaginary)
            windowed = torch.fft.irfft(spectra, self._fft_size) * self.window
        frame_count = real.shape[1]
        energy = self.window.square().expand(1, frame_count, -1)
        edge = self._fft_size // 2
        samples = slice(edge, edge + (frame_count - 1) * self._hop_size)
        # Samples before the first and after the last frame's centre, where little overlaps, go.
        return self._overlapped(windowed)[:, samples] / self._overlapped(energy)[:, samples]

    def _overlapped(self, frames: Tensor) -> Tensor:
        """Add up frames ``hop_size`` apart.

        Args:
            frames: Shape ``(batch, frames, fft_size)``.

        Returns:
            Shape ``(batch, samples)``, at least ``(frames - 1) * hop_size + fft_size`` of them.
        """
        hops = math.ceil(self._fft_size / self._hop_size)
        missing = hops * self._hop_size - self._fft_size
        pieces = functional.pad(frames, (0, missing)).reshape(
            len(frames), frames.shape[1], hops, self._hop_size
        )
        shifted = [
            functional.pad(pieces[:, :, hop], (0, 0, hop, hops - 1 - hop)) for hop in range(hops)
        ]
        return torch.stack(shifted).sum(0).flatten(1)


def _padded_window(settings: MelSettings) -> Tensor:
    """Return the Hann window in the middle of a transform, float64, shape ``(fft_size,)``."""
    missing = settings.fft_size - settings.window_size
    window = torch.hann_window(settings.window_size, dtype=torch.float64)
    return functional.pad(window, (missing // 2, missing - missing // 2))


def _waves(fft_size: int) -> Tensor:
    """Return what a real and an imaginary part of 1 at each frequency sound like.

    Returns:
        Cosines, then negative sines, float64, shape ``(2 * bins, fft_size)``.
    """
    frequencies = torch.arange(fft_size // 2 + 1)
    # Whole numbers up to here: the angles of high frequencies stay exact.
    turns = frequencies[:, None] * torch.arange(fft_size) % fft_size
    angles = 2 * math.pi / fft_size * turns.double()
    # Every frequency but the lowest and the highest stands for its negative too.
    shares = torch.full((len(frequencies), 1), 2 / fft_size, dtype=torch.float64)
    shares[[0, -1]] /= 2
    return torch.cat([shares * angles.cos(), -shares * angles.sin()])
