"""Blocks of the voice's encoder and decoder: every sub-layer behind a norm, beside a residual.

Every sub-layer ends in a linear layer named ``to_out``. A block whose ``to_out`` layers are zero
adds nothing, so a stack can grow without a change of what it computes.

References:
    [FedDT-TTS] arXiv:2107.08795, section 2.1: Front-LN.
    [Xiong] Xiong et al., ICML 2020, arXiv:2002.04745: layer norms in the Transformer.
"""

from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional

from models.layers.attention import CrossAttention, KeysValues, SelfAttention
from models.layers.dropout import Dropout
from models.layers.he_scaling import HeLinear
from models.layers.transformer import FeedForward, PreNormBlock
from models.settings.voice import TransformerTtsSettings


class Step(NamedTuple):
    """The outcome of one step of a decoder block.

    Attributes:
        values: The stream after the block, shape ``(batch, 1, hidden)``.
        past: Keys and values of the steps so far.
        attention: Where the step looks in the text, shape ``(batch, heads, 1, text)``.
    """

    values: Tensor
    past: KeysValues
    attention: Tensor


class DecoderBlock(nn.Module):
    """Causal self-attention over the steps, attention to the text, a feed-forward network."""

    def __init__(self, settings: TransformerTtsSettings) -> None:
        super().__init__()
        width, heads = settings.hidden_size, settings.head_count
        self.attention_norm = nn.LayerNorm(width)
        self.attention = _self_attention(settings, causal=True)
        self.cross_attention_norm = nn.LayerNorm(width)
        self.cross_attention = CrossAttention(width, heads, width // heads, linear=HeLinear)
        self.feedforward_norm = nn.LayerNorm(width)
        self.feedforward = _feedforward(settings)
        self.dropout = Dropout(settings.dropout)

    def forward(self, values: Tensor, memory: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the stream, ``(batch, steps, hidden)``, and attention over the text by head.

        ``memory`` is the encoder's output, ``(batch, text, hidden)``; ``mask`` is False at its
        padding, bool, or added to the scores; it broadcasts to ``(batch, heads, steps, text)``.
        """
        values = values + self.dropout(self.attention(self.attention_norm(values)))
        return self._read_on(values, self.cross_attention.keys_values(memory), mask)

    def step(
        self, values: Tensor, memory: KeysValues, mask: Tensor, past: KeysValues | None
    ) -> Step:
        """Take one more step, ``(batch, 1, hidden)``, as ``forward`` of all steps would.

        ``memory`` comes from ``cross_attention.keys_values``, ``past`` from the step before.
        """
        attended, past = self.attention.step(self.attention_norm(values), past)
        values, attention = self._read_on(values + self.dropout(attended), memory, mask)
        return Step(values, past, attention)

    def _read_on(self, values: Tensor, memory: KeysValues, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the stream after attention to the text and the feed-forward network."""
        taken, attention = self.cross_attention.look(
            self.cross_attention_norm(values), memory, mask
        )
        values = values + self.dropout(taken)
        return values + self.dropout(self.feedforward(self.feedforward_norm(values))), attention


def _self_attention(settings: TransformerTtsSettings, *, causal: bool) -> SelfAttention:
    width, heads = settings.hidden_size, settings.head_count
    return SelfAttention(width, heads, width // heads, causal=causal, linear=HeLinear)


def _feedforward(settings: TransformerTtsSettings) -> FeedForward:
    return FeedForward(
        settings.hidden_size,
        settings.feedforward_size,
        settings.dropout,
        activation=functional.relu,
        linear=HeLinear,
    )


def encoder_block(settings: TransformerTtsSettings) -> PreNormBlock:
    """Return self-attention over the text, then a feed-forward network."""
    attention = _self_attention(settings, causal=False)
    return PreNormBlock(attention, _feedforward(settings), settings.dropout)
