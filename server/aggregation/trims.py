"""Say which updates of a round to leave out: those far from where it is, or those that oppose it.

References:
    [Median] Yin et al., ICML 2018, arXiv:1803.01498, Definition 1.
    [FLTrust] Cao et al., "FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping",
        NDSS 2021, arXiv:2012.13995, Eq. 2: an update that points away from one the server trusts
        counts nothing. Here the cohort stands for what a server without data cannot train.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from torch import Tensor

from server.aggregation.coordinate_wise import coordinate_median
from server.aggregation.pairwise import InnerProducts, median_cosines


class Trim(Protocol):
    """Look at every chunk of a cohort once, then name whom to leave out."""

    def add(self, rows: Tensor) -> None:
        """Look at one chunk, float32, shape ``(cohort, chunk elements)``; it may be overwritten."""

    def left_out(self, most: int) -> frozenset[int]:
        """Return at most so many rows; of equal ones the lower stays."""


class FarFromMedian:
    """Leave out as many as may be: the largest distances from the coordinate-wise median."""

    def __init__(self) -> None:
        """Start before the first chunk."""
        self._squares: list[float] = []

    def add(self, rows: Tensor) -> None:
        """Add one chunk to everybody's squared distance."""
        # In place: the rows are read again for every pass.
        away = rows.sub_(coordinate_median(rows)).numpy()
        squares = np.vecdot(away, away).astype(np.float64).tolist()
        before = self._squares or [0.0] * len(squares)
        self._squares = [old + new for old, new in zip(before, squares, strict=True)]

    def left_out(self, most: int) -> frozenset[int]:
        """Return the furthest."""
        return _highest(self._squares, most)


class AgainstOthers:
    """Leave out only who opposes most others: the median of its cosines with them is below 0.

    While there is much to learn honest updates share a direction, however much their sizes differ,
    so usually all stay. The less they share, late in training, the less it tells.
    """

    def __init__(self) -> None:
        """Start before the first chunk."""
        self._products = InnerProducts()

    def add(self, rows: Tensor) -> None:
        """Add one chunk to the inner products."""
        self._products.add(rows)

    def left_out(self, most: int) -> frozenset[int]:
        """Return those that oppose the others, those that do so most if they are too many."""
        opposed: list[float] = (-median_cosines(self._products.gram)).tolist()
        return frozenset(client for client in _highest(opposed, most) if opposed[client] > 0)


def _highest(scores: Sequence[float], most: int) -> frozenset[int]:
    """Return as many of the highest; sorting is stable, so of equal ones the lower stays."""
    count = len(scores)
    return frozenset(sorted(range(count), key=lambda client: scores[client])[count - most :])
