"""Convolutions over time that padding does not reach: a voice's text pre-net and its post-net.

Sequences of a batch are padded at the end. Padding is zero before every convolution, like what lies
beyond the longest sequence, and stays out of a batch norm's statistics. So a sequence comes out the
same whatever it is batched with, except from a batch norm that learns.

References:
    [Li] Li et al., AAAI 2019, arXiv:1809.08895, sections 3.2 and 3.7.
    [Tacotron2] Shen et al., ICASSP 2018, arXiv:1712.05884: the post-net.
"""

from collections.abc import Iterable
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.layers.batch_norm import BatchNorm
from models.layers.dropout import Dropout
from models.layers.he_scaling import HeConvolution, HeLinear
from models.settings.voice import (
    KERNEL_SIZE,
    PRENET_CONVOLUTIONS,
    TransformerTtsSettings,
)

Norm = Literal["batch", "layer", "none"]
Activation = Literal["relu", "tanh", "none"]


class Convolution(nn.Module):
    """A convolution, its norm, activation and dropout; zero where there is padding."""

    def __init__(
        self,
        source: int,
        channels: int,
        *,
        norm: Norm,
        activation: Activation,
        dropout: float,
    ) -> None:
        super().__init__()
        self.convolution = HeConvolution(source, channels, KERNEL_SIZE, padding=KERNEL_SIZE // 2)
        self.batch_norm = BatchNorm(channels) if norm == "batch" else None
        self.layer_norm = nn.LayerNorm(channels) if norm == "layer" else None
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        """Return the layer's output, ``(batch, time, channels)``; values are zero at padding.

        ``mask`` is False at padding, bool, shape ``(batch, time)``.
        """
        values = self.convolution(values.transpose(1, 2)).transpose(1, 2)
        if self.batch_norm is not None:
            values = _normed(self.batch_norm, values, mask)
        if self.layer_norm is not None:
            values = self.layer_norm(values)
        if self.activation == "relu":
            values = functional.relu(values)
        elif self.activation == "tanh":
            values = torch.tanh(values)
        dropped: Tensor = self.dropout(values)
        return dropped * mask.unsqueeze(2)


class TextPrenet(nn.Module):
    """Embedding, three convolutions, and a projection that brings values below zero back."""

    def __init__(self, settings: TransformerTtsSettings) -> None:
        super().__init__()
        channels = settings.text_channels
        sources = (settings.embedding_size, *(channels,) * (PRENET_CONVOLUTIONS - 1))
        self.embedding = nn.Embedding(settings.text.symbol_count, settings.embedding_size)
        self.convolutions = nn.ModuleList(
            Convolution(
                source,
                channels,
                norm=settings.norm,
                activation="relu",
                dropout=settings.convolution_dropout,
            )
            for source in sources
        )
        self.projection = HeLinear(channels, settings.hidden_size)

    def forward(self, texts: Tensor, mask: Tensor) -> Tensor:
        """Return the encoder's input, ``(batch, text, hidden)``.

        ``texts`` are characters, int64, and ``mask`` is False at padding; both ``(batch, text)``.
        """
        values = self.embedding(texts) * mask.unsqueeze(2)
        for layer in self.convolutions:
            values = layer(values, mask)
        return self.projection(values)  # type: ignore[no-any-return]  # modules return Any


class Postnet(nn.Module):
    """Convolutions that see both sides of a frame and add what it lacks."""

    def __init__(self, settings: TransformerTtsSettings) -> None:
        super().__init__()
        mels, last = settings.mel.mel_count, settings.postnet_layer_count - 1
        widths = (mels, *(settings.postnet_channels,) * last, mels)
        self.convolutions = nn.ModuleList(
            Convolution(
                widths[place],
                widths[place + 1],
                norm=settings.norm if place < last else "none",
                activation="tanh" if place < last else "none",
                dropout=settings.convolution_dropout if place < last else 0.0,
            )
            for place in range(settings.postnet_layer_count)
        )

    def forward(self, frames: Tensor, mask: Tensor) -> Tensor:
        """Return the corrected frames, ``(batch, frames, mel)``; ``mask`` as above."""
        values = frames * mask.unsqueeze(2)
        # Cast: a module list is typed as one of modules of any kind.
        for layer in cast("Iterable[Convolution]", self.convolutions):
            values = layer(values, mask)
        return frames + values


def _normed(norm: BatchNorm, values: Tensor, mask: Tensor) -> Tensor:
    """Return a batch norm over the real positions alone, and zero elsewhere."""
    spread = torch.zeros_like(values)
    spread[mask] = norm(values[mask])
    return spread
