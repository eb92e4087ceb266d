"""Multi-head attention of linear layers, for every Transformer here.

Attention is made of ``nn.Linear`` and ``scaled_dot_product_attention``, so that per-sample
gradients and graph export both see it. Its query-key-value projection is one matrix without a bias,
so that a hypernetwork can make it; cross-attention has a matrix for each.

References:
    [Vaswani] "Attention Is All You Need", NeurIPS 2017, arXiv:1706.03762.
    [FedTP] Li et al., arXiv:2211.01572: heads whose sizes do not add up to the model's.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

KeysValues = tuple[Tensor, Tensor]
"""Keys and values of a sequence, each of shape ``(batch, heads, time, head size)``."""


class SelfAttention(nn.Module):
    """Attention of each position to all positions, or only to itself and earlier ones."""

    def __init__(
        self,
        model_size: int,
        head_count: int,
        head_size: int,
        *,
        causal: bool,
        out_bias: bool = True,
        linear: type[nn.Linear] = nn.Linear,
    ) -> None:
        super().__init__()
        inner = head_count * head_size
        self.head_count = head_count
        self.causal = causal
        self.to_qkv = linear(model_size, 3 * inner, bias=False)
        self.to_out = linear(inner, model_size, bias=out_bias)

    def forward(self, values: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return attended values, shape ``(batch, time, embed)`` as given.

        ``mask`` is bool, True where a key may be looked at, and broadcasts to ``(batch, heads,
        time, time)``; only for attention that is not causal.
        """
        query, key, value = self._projected(values)
        attended = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=self.causal
        )
        return self.to_out(_side_by_side(attended))  # type: ignore[no-any-return]  # returns Any

    def step(self, values: Tensor, past: KeysValues | None) -> tuple[Tensor, KeysValues]:
        """Attend from one more position, ``(batch, 1, embed)``, as ``forward`` of all would.

        Returns its values and the keys and values so far, which the next call takes as ``past``.
        """
        query, key, value = self._projected(values)
        if past is not None:
            key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        attended = functional.scaled_dot_product_attention(query, key, value)
        return self.to_out(_side_by_side(attended)), (key, value)

    def weights(self, values: Tensor) -> Tensor:
        """Return attention weights, rows adding up to 1, shape ``(batch, heads, time, time)``.

        ``values`` has shape ``(batch, time, embed)``; nothing is masked but later positions.
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
    """Attention of each position of one sequence to another sequence."""

    def __init__(
        self,
        model_size: int,
        head_count: int,
        head_size: int,
        *,
        out_bias: bool = True,
        linear: type[nn.Linear] = nn.Linear,
    ) -> None:
        super().__init__()
        inner = head_count * head_size
        self.head_count = head_count
        self.to_q = linear(model_size, inner, bias=False)
        self.to_k = linear(model_size, inner, bias=False)
        self.to_v = linear(model_size, inner, bias=False)
        self.to_out = linear(inner, model_size, bias=out_bias)

    def forward(self, values: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Return what each position takes from the other sequence, shape ``(batch, time, embed)``.

        ``memory`` has shape ``(batch, memory time, embed)``; ``mask`` is bool, True where it may be
        looked at, and broadcasts to ``(batch, heads, time, memory time)``.
        """
        keys, held = self.keys_values(memory)
        attended = functional.scaled_dot_product_attention(
            self._heads(self.to_q(values)), keys, held, attn_mask=mask
        )
        return self.to_out(_side_by_side(attended))  # type: ignore[no-any-return]  # returns Any

    def keys_values(self, memory: Tensor) -> KeysValues:
        """Return the keys and values of the other sequence, for ``look``."""
        return self._heads(self.to_k(memory)), self._heads(self.to_v(memory))

    def look(self, values: Tensor, memory: KeysValues, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return what ``forward`` does, and the weights: ``(batch, heads, time, memory time)``.

        ``mask`` may also be float: it is added to the scores then.
        """
        keys, held = memory
        query = self._heads(self.to_q(values))
        scores = query @ keys.transpose(-2, -1) / math.sqrt(query.shape[-1])
        is_added = mask.is_floating_point()
        scores = scores + mask if is_added else scores.masked_fill(~mask, -math.inf)
        weights = scores.softmax(-1)
        return self.to_out(_side_by_side(weights @ held)), weights

    def _heads(self, values: Tensor) -> Tensor:
        batch, time, _ = values.shape
        return values.view(batch, time, self.head_count, -1).transpose(1, 2)


def _side_by_side(heads: Tensor) -> Tensor:
    """Return ``(batch, time, heads * head size)`` of ``(batch, heads, time, head size)``."""
    return heads.transpose(1, 2).flatten(2)
