"""Multi-head attention of linear layers, for every Transformer here.

Attention is made of ``nn.Linear`` and ``scaled_dot_product_attention``, so that per-sample
gradients and graph export both see it, and its query-key-value projection is one matrix without a
bias, so that a hypernetwork can make it. Where queries come from another sequence than keys and
values, each has a matrix of its own.

References:
    [Vaswani] "Attention Is All You Need", NeurIPS 2017, arXiv:1706.03762.
    [FedTP] Li et al., arXiv:2211.01572: heads whose sizes do not add up to the model's.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class SelfAttention(nn.Module):
    """Let each position look at all positions, or only at itself and earlier ones."""

    def __init__(
        self,
        model_size: int,
        head_count: int,
        head_size: int,
        *,
        causal: bool,
        out_bias: bool = True,
    ) -> None:
        super().__init__()
        inner = head_count * head_size
        self.head_count = head_count
        self.causal = causal
        self.to_qkv = nn.Linear(model_size, 3 * inner, bias=False)
        self.to_out = nn.Linear(inner, model_size, bias=out_bias)

    def forward(self, values: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return attended values.

        Args:
            values: Shape ``(batch, time, embed)``.
            mask: True where a key may be looked at, bool, broadcast to
                ``(batch, heads, time, time)``; of an attention that is not causal.

        Returns:
            Shape ``(batch, time, embed)``.
        """
        query, key, value = self._projected(values)
        attended = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=self.causal
        )
        return self.to_out(_side_by_side(attended))  # type: ignore[no-any-return]  # returns Any

    def weights(self, values: Tensor) -> Tensor:
        """Return how much each position takes from each other one, which ``forward`` never holds.

        Args:
            values: Shape ``(batch, time, embed)``, nothing masked but what comes later.

        Returns:
            Rows of positions that look, each adding up to 1: shape ``(batch, heads, time, time)``.
        """
        query, key, _ = self._projected(values)
        scores: Tensor = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        if self.causal:
            is_later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(is_later, -math.inf)
        return scores.softmax(-1)

    def _projected(self, values: Tensor) -> Tensor:
        """Return queries, keys and values: shape ``(3, batch, heads, time, head size)``."""
        batch, time, _ = values.shape
        qkv: Tensor = self.to_qkv(values).view(batch, time, 3, self.head_count, -1)
        return qkv.permute(2, 0, 3, 1, 4)


class CrossAttention(nn.Module):
    """Let each position of one sequence look at another sequence."""

    def __init__(
        self, model_size: int, head_count: int, head_size: int, *, out_bias: bool = True
    ) -> None:
        super().__init__()
        inner = head_count * head_size
        self.head_count = head_count
        self.to_q = nn.Linear(model_size, inner, bias=False)
        self.to_k = nn.Linear(model_size, inner, bias=False)
        self.to_v = nn.Linear(model_size, inner, bias=False)
        self.to_out = nn.Linear(inner, model_size, bias=out_bias)

    def forward(self, values: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Return what each position takes from the other sequence.

        Args:
            values: The positions that look, shape ``(batch, time, embed)``.
            memory: What they look at, shape ``(batch, memory time, embed)``.
            mask: True where it may be looked at, bool, broadcast to
                ``(batch, heads, time, memory time)``.

        Returns:
            Shape ``(batch, time, embed)``.
        """
        attended = functional.scaled_dot_product_attention(
            self._heads(self.to_q(values)),
            self._heads(self.to_k(memory)),
            self._heads(self.to_v(memory)),
            attn_mask=mask,
        )
        return self.to_out(_side_by_side(attended))  # type: ignore[no-any-return]  # returns Any

    def _heads(self, values: Tensor) -> Tensor:
        batch, time, _ = values.shape
        return values.view(batch, time, self.head_count, -1).transpose(1, 2)


def _side_by_side(heads: Tensor) -> Tensor:
    """Return ``(batch, time, heads * head size)`` of ``(batch, heads, time, head size)``."""
    return heads.transpose(1, 2).flatten(2)
