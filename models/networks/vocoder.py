"""A small neural vocoder: log-mel spectrograms in, sound out, in one pass.

ConvNeXt blocks read the mel frames and keep their number. A linear head gives each frame's
amplitudes and phases, which the inverse transform turns into sound.

One departure from the paper, for training within minutes on few recordings: the head's log
amplitudes are added to those that follow from the mel channels themselves.

References:
    [Vocos] Siuzdak, ICLR 2024, arXiv:2306.00814.
    [ConvNeXt] Liu et al., "A ConvNet for the 2020s", CVPR 2022, arXiv:2201.03545.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.layers.initialisation import draw_layers
from models.settings.vocoder import (
    KERNEL_SIZE,
    LARGEST_AMPLITUDE,
    MEL_CENTRE,
    NORM_EPSILON,
    SMALLEST_AMPLITUDE,
    VocoderSettings,
)
from models.sound.inverse_transform import InverseTransform
from models.sound.mel_filters import mean_spread


class ConvNextBlock(nn.Module):
    """A convolution along time for each channel, then a mix of the channels of each frame."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))
        self.over_time = _over_time(width, width, groups=width)
        self.norm = nn.LayerNorm(width, eps=NORM_EPSILON)
        self.widen = nn.Linear(width, hidden)
        self.narrow = nn.Linear(hidden, width)

    def forward(self, stream: Tensor) -> Tensor:
        """Return the stream with the block's output added, ``(batch, frames, width)``."""
        seen = self.over_time(stream.transpose(1, 2)).transpose(1, 2)
        mixed: Tensor = self.narrow(functional.gelu(self.widen(self.norm(seen))))
        return stream + self.scale * mixed


class Vocoder(nn.Module):
    """A network that turns log-mel spectrograms of any length into sound.

    Attributes:
        settings: The settings it was built from.
    """

    _spread: Tensor

    def __init__(self, settings: VocoderSettings) -> None:
        super().__init__()
        mel, width = settings.mel, settings.width
        self.settings = settings
        self.embedding = _over_time(mel.mel_count, width)
        self.embedding_norm = nn.LayerNorm(width, eps=NORM_EPSILON)
        self.blocks = nn.ModuleList(
            ConvNextBlock(width, settings.hidden_size) for _ in range(settings.block_count)
        )
        self.norm = nn.LayerNorm(width, eps=NORM_EPSILON)
        self.head = nn.Linear(width, 2 * mel.bin_count)
        self.inverse = InverseTransform(mel)
        # Follows from the settings, so it does not travel.
        self.register_buffer(
            "_spread", torch.from_numpy(mean_spread(mel)).float(), persistent=False
        )

    def initialise(self, generator: torch.Generator) -> None:
        """Draw layers as the framework does; blocks share out one layer scale, as in [Vocos]."""
        draw_layers(self, generator)
        for name, parameter in self.named_parameters():
            if name.endswith(".scale"):
                nn.init.constant_(parameter, 1 / self.settings.block_count)

    def forward(self, mel: Tensor) -> Tensor:
        """Return sound, ``(batch, (frames - 1) * hop_size)``, with about the given log-mels.

        ``mel`` holds natural logarithms, shape ``(batch, mel, frames >= 2)``.
        """
        channels = self.settings.mel.mel_count
        if mel.ndim != 3 or mel.shape[1] != channels or mel.shape[2] < 2:
            raise ValueError(
                f"mel must have shape (batch, {channels}, frames >= 2), got {tuple(mel.shape)}"
            )
        stream = self.embedding(mel - MEL_CENTRE).transpose(1, 2)
        stream = self.embedding_norm(stream)
        for block in self.blocks:
            stream = block(stream)
        # Float, also under autocast: e to the power of a bfloat16 is off by 3 %.
        logs, phases = self.head(self.norm(stream)).float().chunk(2, dim=-1)
        logs = logs + self._spelt_out(mel)
        amplitudes = logs.clamp(max=math.log(LARGEST_AMPLITUDE)).exp()
        sound: Tensor = self.inverse(amplitudes * phases.cos(), amplitudes * phases.sin())
        return sound

    def _spelt_out(self, mel: Tensor) -> Tensor:
        """Return the log amplitudes that the channels imply, ``(batch, frames, bins)``."""
        channels = mel.float().clamp(max=math.log(LARGEST_AMPLITUDE)).exp()
        spread = channels.transpose(1, 2) @ self._spread
        return spread.clamp(min=SMALLEST_AMPLITUDE).log()


def _over_time(sources: int, width: int, *, groups: int = 1) -> nn.Conv1d:
    return nn.Conv1d(sources, width, KERNEL_SIZE, padding=KERNEL_SIZE // 2, groups=groups)
