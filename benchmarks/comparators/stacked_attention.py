"""Attentive aggregation as it is usually written: stack the cohort, softmax, einsum.

It computes what rule ``attentive`` computes for a full cohort within the clip, from a stack that
holds the whole cohort: one copy of each update, one read for the norms, one for the sum.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def stacked_attention(
    updates: Sequence[Tensor],
    layers: Iterable[slice],
    *,
    attention_strength: float,
    clipping_norm: float,
) -> Tensor:
    """Return the aggregated update.

    Args:
        updates: One flat float32 vector a client, shape ``(elements,)``, within the clip.
        layers: Where each layer lies in it.
        attention_strength: κ.
        clipping_norm: C.
    """
    stack = torch.stack(list(updates))  # (cohort, elements)
    aggregate = torch.empty_like(stack[0])
    for where in layers:
        norms = torch.linalg.vector_norm(stack[:, where], dim=1)
        weights = torch.softmax(attention_strength / clipping_norm * norms, dim=0)
        aggregate[where] = torch.einsum("k,kn->n", weights, stack[:, where])
    return aggregate
