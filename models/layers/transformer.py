"""Transformer blocks that several families share: norms before the sub-layers, or behind them.

References:
    [Vaswani] "Attention Is All You Need", NeurIPS 2017, arXiv:1706.03762: norms behind.
    [Xiong] Xiong et al., ICML 2020, arXiv:2002.04745: norms before.
"""

from collections.abc import Callable

from torch import Tensor, nn

from models.layers.attention import SelfAttention
from models.layers.dropout import Dropout


class FeedForward(nn.Module):
    """A feed-forward network: widen, activate, drop, narrow."""

    def __init__(
        self,
        width: int,
        hidden: int,
        dropout: float,
        *,
        activation: Callable[[Tensor], Tensor],
        linear: type[nn.Linear] = nn.Linear,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.to_hidden = linear(width, hidden)
        self.to_out = linear(hidden, width)
        self.dropout = Dropout(dropout)

    def forward(self, values: Tensor) -> Tensor:
        """Return the block's contribution, shape ``(batch, time, embed)`` as given."""
        hidden = self.dropout(self.activation(self.to_hidden(values)))
        return self.to_out(hidden)  # type: ignore[no-any-return]  # modules return Any


class PreNormBlock(nn.Module):
    """Attention, then a feed-forward network, each behind a norm and beside a residual."""

    def __init__(self, attention: SelfAttention, feedforward: nn.Module, dropout: float) -> None:
        super().__init__()
        width = attention.to_out.out_features
        self.attention_norm = nn.LayerNorm(width)
        self.attention = attention
        self.feedforward_norm = nn.LayerNorm(width)
        self.feedforward = feedforward
        self.dropout = Dropout(dropout)

    def forward(self, values: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the stream after the block, ``(batch, time, embed)``; mask as for attention."""
        values = values + self.dropout(self.attention(self.attention_norm(values), mask))
        return values + self.dropout(  # type: ignore[no-any-return]  # modules return Any
            self.feedforward(self.feedforward_norm(values))
        )


class PostNormBlock(nn.Module):
    """Attention, then a feed-forward network, each added to its input and normed after that."""

    def __init__(
        self, attention: SelfAttention, hidden: int, dropout: float, *, epsilon: float = 1e-5
    ) -> None:
        super().__init__()
        width = attention.to_out.out_features
        self.attention = attention
        self.attention_norm = nn.LayerNorm(width, eps=epsilon)
        self.feedforward = plain_feedforward(width, hidden, nn.ReLU())
        self.feedforward_norm = nn.LayerNorm(width, eps=epsilon)
        self.dropout = Dropout(dropout)

    def forward(self, values: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the stream after the block, ``(batch, time, embed)``; mask as for attention."""
        values = self.attention_norm(values + self.dropout(self.attention(values, mask)))
        return self.feedforward_norm(  # type: ignore[no-any-return]  # modules return Any
            values + self.dropout(self.feedforward(values))
        )


def plain_feedforward(width: int, hidden: int, activation: nn.Module) -> nn.Sequential:
    """Return a feed-forward network without dropout, its layers named ``0`` and ``2``."""
    return nn.Sequential(nn.Linear(width, hidden), activation, nn.Linear(hidden, width))
