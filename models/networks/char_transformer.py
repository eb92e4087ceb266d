"""FedTP's Transformer for the next character, made causal.

The published code calls its encoder without a mask although targets are the inputs shifted by one,
so four of five predictions read their own answer, and its accuracy on Shakespeare is meaningless.
Here no position looks ahead; all else is that code's: post-LN blocks, fixed sinusoids, a norm and
dropout after the embedding, scores scaled by 1 / sqrt(model size), no biases in attention and head.

References:
    [FedTP] Li et al., arXiv:2211.01572, section IV-A, and its published code.
"""

import math

import torch
from torch import Tensor, nn

from models.layers.attention import SelfAttention
from models.layers.dropout import Dropout
from models.layers.initialisation import draw_glorot
from models.layers.positions import sinusoids
from models.layers.transformer import PostNormBlock
from models.networks.character_model import check_fits
from models.settings.character import CharTransformerSettings
from models.text.alphabet import ALPHABET

NORM_EPS = 1e-6


class CharTransformer(nn.Module):
    """Embedding and position -> norm -> causal blocks -> scale -> head."""

    position: Tensor

    def __init__(self, settings: CharTransformerSettings) -> None:
        super().__init__()
        width = settings.model_size
        self.context_size = settings.context_size
        self.scale = 1 / math.sqrt(width)
        self.embedding = nn.Embedding(len(ALPHABET), width)
        self.register_buffer("position", sinusoids(settings.context_size, width), persistent=False)
        self.norm = nn.LayerNorm(width, eps=NORM_EPS)
        self.blocks = nn.ModuleList(_block(settings) for _ in range(settings.layer_count))
        self.head = nn.Linear(width, len(ALPHABET), bias=False)
        self.dropout = Dropout(settings.dropout)

    def features(self, characters: Tensor) -> Tensor:
        """Return the last block's output, scaled, ``(batch, time, embed)``; see ``CharLstm``."""
        check_fits(characters, self.context_size)
        positions = self.position[: characters.shape[1]]
        values: Tensor = self.norm(self.dropout(self.embedding(characters) + positions))
        for block in self.blocks:
            values = block(values)
        return values * self.scale

    def initialise(self, generator: torch.Generator) -> None:
        """Draw matrices from Glorot's uniform distribution; norms scale by 1 and shift by 0."""
        draw_glorot(self, generator)


def _block(settings: CharTransformerSettings) -> PostNormBlock:
    width, heads = settings.model_size, settings.head_count
    attention = SelfAttention(width, heads, settings.head_size, causal=True, out_bias=False)
    return PostNormBlock(attention, settings.feedforward_size, settings.dropout, epsilon=NORM_EPS)
