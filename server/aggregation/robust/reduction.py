"""The protocol of a reduction: the one thing in which rules that read by chunk differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from models.vector.layers import Layer


@dataclass(frozen=True)
class Cohort:
    """The L2 norms of a cohort's clipped tensors, a row a client, and its count of empty places."""

    tensor_norms: Sequence[tuple[float, ...]]
    empty_count: int


class Reduction(Protocol):
    """A reduction of the cohort by chunks; if ``surveys``, ``survey`` sees all of them first."""

    surveys: ClassVar[bool]

    def survey(self, rows: Tensor, where: slice) -> None:
        """Look at one chunk of every update, shape ``(cohort, chunk elements)``; may change it."""
        ...

    def settle(self, cohort: Cohort) -> None:
        """Decide what the survey means; called once, before the first ``reduce``."""
        ...

    def reduce(self, rows: Tensor, where: slice) -> Tensor:
        """Return one chunk of the result, shape ``(chunk elements,)``; the rows may be changed."""
        ...

    def shares(self) -> tuple[tuple[str, ...], tuple[tuple[float, ...], ...]] | None:
        """Return names of layers and each client's share of each; None for a rule without."""
        ...


def weighted_rows(
    rows: Tensor, where: slice, layers: Sequence[Layer], shares: Sequence[Sequence[float]]
) -> Tensor:
    """Return Σ_k w_k D_k over one chunk, summed in float64, as float32.

    ``rows`` has shape ``(cohort, chunk elements)``, ``shares`` a row a client and a column a layer.
    """
    summed = torch.zeros(rows.shape[1], dtype=torch.float32)
    columns = torch.tensor(shares, dtype=torch.float64)
    for index, layer in enumerate(layers):
        for span in layer.ranges:
            first, last = max(span.start, where.start), min(span.stop, where.stop)
            if first < last:
                inside = slice(first - where.start, last - where.start)
                _sum_into(summed[inside], rows[:, inside], columns[:, index])
    return summed


# Elements of one update that are summed at a time: small enough to stay in the cache as float64.
_BLOCK = 1 << 14


def _sum_into(target: Tensor, rows: Tensor, weights: Tensor) -> None:
    for start in range(0, len(target), _BLOCK):
        block = torch.zeros(len(target[start : start + _BLOCK]), dtype=torch.float64)
        for row, weight in zip(rows, weights.tolist(), strict=True):
            if weight:
                block.add_(row[start : start + _BLOCK], alpha=weight)
        target[start : start + _BLOCK] = block
