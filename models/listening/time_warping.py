"""Align two sequences that say the same at different speeds (dynamic time warping).

References:
    Sakoe and Chiba, "Dynamic Programming Algorithm Optimization for Spoken Word Recognition", 1978.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class WarpingPath(NamedTuple):
    """Pairs of places; each rises by 0 or 1 from one pair to the next, and never both by 0.

    Attributes:
        first: Places in the first sequence, from its first to its last, int64, shape ``(pairs,)``.
        second: Places in the second sequence, likewise.
    """

    first: Tensor
    second: Tensor


def warp(costs: Tensor) -> WarpingPath:
    """Return a path of the least total cost from the first pair to the last.

    No slope is forbidden and every pair counts once. Among paths with equal totals, the one that
    ends in more steps of both sequences at once is taken. ``costs``, ``(first, second)``, are
    finite and at least 0.
    """
    if costs.ndim != 2 or not costs.numel():
        raise ValueError(f"costs must be of one pair at least, got shape {tuple(costs.shape)}")
    if not bool((torch.isfinite(costs) & (costs >= 0)).all()):
        raise ValueError("costs must be >= 0 and finite, got others")
    places = _path_back(_totals(costs.double().numpy()))
    return WarpingPath(places[:, 0], places[:, 1])


def warped(values: Tensor, path: WarpingPath) -> Tensor:
    """Return the second sequence, ``(width, second)``, at the speed of the first.

    Each place of the first sequence gets the mean of what is paired with it.
    """
    count = int(path.first[-1]) + 1
    sums = values.new_zeros(len(values), count).index_add_(1, path.first, values[:, path.second])
    return sums / torch.bincount(path.first, minlength=count).to(values)


def _totals(costs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the least cost of reaching each pair, with a border of infinity around them."""
    rows, columns = costs.shape
    totals = np.full((rows + 1, columns + 1), np.inf)
    totals[0, 0] = 0
    # All pairs whose places add up to the same depend on earlier sums alone.
    for place in range(2, rows + columns + 1):
        row = np.arange(max(1, place - columns), min(rows, place - 1) + 1)
        column = place - row
        beside = np.minimum(totals[row - 1, column], totals[row, column - 1])
        totals[row, column] = costs[row - 1, column - 1] + np.minimum(
            totals[row - 1, column - 1], beside
        )
    return totals


def _path_back(totals: NDArray[np.float64]) -> Tensor:
    """Return the places of the cheapest path, shape ``(pairs, 2)``."""
    row, column = totals.shape[0] - 1, totals.shape[1] - 1
    places = []
    while row and column:
        places.append((row - 1, column - 1))
        befores = ((row - 1, column - 1), (row - 1, column), (row, column - 1))
        row, column = min(befores, key=lambda before: totals[before])
    return torch.tensor(places[::-1])
