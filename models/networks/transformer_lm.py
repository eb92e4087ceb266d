"""A small causal Transformer for next words: pre-LN blocks and learnt positions.

References:
    [GPT-2] Radford et al., 2019: the block and its initialisation.
"""

import math

import torch
from torch import Tensor, nn

from models.layers.attention import SelfAttention
from models.layers.dropout import Dropout
from models.layers.output import OutputLayer
from models.layers.transformer import PreNormBlock, plain_feedforward
from models.settings.model import TransformerLmSettings

INITIAL_STD = 0.02


class TransformerLm(nn.Module):
    """Embedding and position -> blocks -> norm; the output matrix may be the embedding's."""

    def __init__(self, settings: TransformerLmSettings) -> None:
        super().__init__()
        self.context_size: int | None = settings.context_size
        self.embedding = nn.Embedding(settings.vocabulary_size, settings.model_size)
        self.position = nn.Embedding(settings.context_size, settings.model_size)
        self.blocks = nn.ModuleList(_block(settings) for _ in range(settings.layer_count))
        self.norm = nn.LayerNorm(settings.model_size)
        self.output = OutputLayer(settings.vocabulary_size, settings.model_size, tied=settings.tied)
        self.dropout = Dropout(settings.dropout)

    @property
    def output_weight(self) -> Tensor:
        """Return the output matrix."""
        return self.embedding.weight if self.output.weight is None else self.output.weight

    @property
    def output_bias(self) -> Tensor:
        """Return the output bias."""
        return self.output.bias

    def features(self, tokens: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return the features after each token, and None: each call is a text of its own."""
        time = tokens.shape[1]
        if time > self.position.num_embeddings:
            raise ValueError(
                f"a sequence must have at most {self.position.num_embeddings} tokens, got {time}"
            )
        places = torch.arange(time, device=tokens.device).expand_as(tokens)
        values = self.dropout(self.embedding(tokens) + self.position(places))
        for block in self.blocks:
            values = block(values)
        return self.norm(values), None

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw matrices from N(0, 0.02²), those that write to the residual stream smaller."""
        # Each block writes to the stream twice: the sum of all of them keeps the scale of one.
        residual_std = INITIAL_STD / math.sqrt(2 * len(self.blocks))
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
            elif "norm" in name:
                parameter.fill_(1)
            else:
                writes = name.endswith(("attention.to_out.weight", "feedforward.2.weight"))
                parameter.normal_(0, residual_std if writes else INITIAL_STD, generator=generator)


def _block(settings: TransformerLmSettings) -> PreNormBlock:
    width, heads = settings.model_size, settings.head_count
    attention = SelfAttention(width, heads, width // heads, causal=True)
    feedforward = plain_feedforward(width, settings.feedforward_size, nn.GELU())
    return PreNormBlock(attention, feedforward, settings.dropout)
