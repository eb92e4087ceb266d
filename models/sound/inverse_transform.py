"""Turn spectra into sound: the inverse short-time Fourier transform, through which gradients go."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.settings.audio import MelSettings
from models.sound.mel_filters import hann_window


class InverseTransform(nn.Module):
    """The inverse of `models.sound.mel.transform`; it has no parameter and nothing travels."""

    window: Tensor

    def __init__(self, settings: MelSettings) -> None:
        super().__init__()
        self._fft_size = settings.fft_size
        self._hop_size = settings.hop_size
        window = torch.from_numpy(hann_window(settings))
        self.register_buffer("window", window.float(), persistent=False)

    def forward(self, real: Tensor, imaginary: Tensor) -> Tensor:
        """Return the sound whose frames come closest: ``(batch, (frames - 1) * hop_size)``.

        Both parts have shape ``(batch, frames, bins)``; the imaginary part of the lowest and the
        highest frequency is not used.
        """
        spectra = torch.complex(real, imaginary)
        windowed = torch.fft.irfft(spectra, self._fft_size) * self.window
        frame_count = real.shape[1]
        energy = self.window.square().expand(1, frame_count, -1)
        edge = self._fft_size // 2
        samples = slice(edge, edge + (frame_count - 1) * self._hop_size)
        # Samples before the first and after the last frame's centre, where little overlaps, go.
        return self._overlapped(windowed)[:, samples] / self._overlapped(energy)[:, samples]

    def _overlapped(self, frames: Tensor) -> Tensor:
        """Add up frames, ``(batch, frames, fft_size)``, that lie ``hop_size`` apart."""
        hops = math.ceil(self._fft_size / self._hop_size)
        missing = hops * self._hop_size - self._fft_size
        pieces = functional.pad(frames, (0, missing)).reshape(
            len(frames), frames.shape[1], hops, self._hop_size
        )
        shifted = [
            functional.pad(pieces[:, :, hop], (0, 0, hop, hops - 1 - hop)) for hop in range(hops)
        ]
        return torch.stack(shifted).sum(0).flatten(1)
