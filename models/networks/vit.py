"""FedTP's tiny Vision Transformer: patches, a class token, pre-LN blocks, a linear head.

Heads are 64 wide whatever the model's width, so the inner size (512) is not the model's (128). At
depth 8 with 10 classes it has 2,645,898 parameters, 59.4 % of them query-key-value projections.

References:
    [FedTP] Li et al., arXiv:2211.01572, section IV-A; sizes that it leaves out are those of its
        published code: depth 8 is eight blocks of one attention each.
    [ViT] Dosovitskiy et al., ICLR 2021, arXiv:2010.11929.
"""

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.layers.attention import SelfAttention
from models.layers.dropout import Dropout
from models.layers.initialisation import draw_layers
from models.layers.transformer import FeedForward, PreNormBlock
from models.networks.classifier import Pixels
from models.settings.image import VitSettings


class Vit(nn.Module):
    """Patches and a class token -> blocks -> the class token's norm -> head."""

    def __init__(self, settings: VitSettings) -> None:
        super().__init__()
        width = settings.model_size
        self.patch_size = settings.patch_size
        self.class_token = nn.Parameter(torch.empty(width))
        self.pixels = Pixels(settings.image_size, settings.pixel_mean, settings.pixel_std)
        self.patches = nn.Linear(settings.patch_elements, width)
        self.position = nn.Embedding(settings.patch_count + 1, width)
        self.blocks = nn.ModuleList(_block(settings) for _ in range(settings.layer_count))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, settings.class_count)
        self.dropout = Dropout(settings.dropout)

    def features(self, pixels: Tensor) -> Tensor:
        """Return the class token after the last block, normed, float32, ``(batch, embed)``."""
        values = self._tokens(pixels)
        for block in self.blocks:
            values = block(values)
        return self.norm(values[:, 0])  # type: ignore[no-any-return]  # modules return Any

    def attentions(self, pixels: Tensor) -> list[Tensor]:
        """Return each block's attention weights in order: ``(batch, heads, tokens, tokens)``.

        Token 0 is the class token, the others are the patches, row by row.
        """
        values = self._tokens(pixels)
        attentions = []
        # Cast: a module list is typed as one of modules of any kind.
        for block in cast("Iterable[PreNormBlock]", self.blocks):
            attentions.append(block.attention.weights(block.attention_norm(values)))
            values = block(values)
        return attentions

    def _tokens(self, pixels: Tensor) -> Tensor:
        """Return the first block's input, shape ``(batch, tokens, embed)``."""
        patches = self.patches(cut_patches(self.pixels(pixels), self.patch_size))
        token = self.class_token.expand(len(patches), 1, -1)
        return self.dropout(  # type: ignore[no-any-return]  # modules return Any
            torch.cat([token, patches], dim=1) + self.position.weight
        )

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw class token and positions from N(0, 1), linear layers as the framework does."""
        self.class_token.normal_(generator=generator)
        draw_layers(self, generator)


def _block(settings: VitSettings) -> PreNormBlock:
    width, hidden, dropout = settings.model_size, settings.feedforward_size, settings.dropout
    attention = SelfAttention(width, settings.head_count, settings.head_size, causal=False)
    feedforward = FeedForward(width, hidden, dropout, activation=functional.gelu)
    return PreNormBlock(attention, feedforward, dropout)


def cut_patches(images: Tensor, patch_size: int) -> Tensor:
    """Cut images into squares, row by row, and flatten each: rows, columns, then channels.

    ``images`` have shape ``(batch, channels, height, width)``; ``patch_size`` divides both sides.
    The result has shape ``(batch, patches, patch_size * patch_size * channels)``.
    """
    batch, channels, height, width = images.shape
    rows, columns = height // patch_size, width // patch_size
    squares = images.reshape(batch, channels, rows, patch_size, columns, patch_size)
    return squares.permute(0, 2, 4, 3, 5, 1).reshape(batch, rows * columns, -1)
