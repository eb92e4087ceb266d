"""Reduce every coordinate by itself: the median and the trimmed mean.

Both are of [Median], Definitions 1 and 2; see ``server.aggregation.robust_settings``.
"""

from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from server.aggregation.robust.reduction import Cohort
from server.aggregation.robust_settings import trimmed_count

# Coordinates that are sorted at a time: a hundred clients' fit the cache.
_BLOCK = 1 << 12


class CoordinateWise:
    """A reduction of each column by itself, by a function of the rows."""

    surveys: ClassVar[bool] = False

    def __init__(self, reduce_rows: Callable[[Tensor], Tensor]) -> None:
        self._reduce_rows = reduce_rows

    def survey(self, rows: Tensor, where: slice) -> None:
        """Look at nothing: every coordinate stands for itself."""

    def settle(self, cohort: Cohort) -> None:
        """Decide nothing."""

    def reduce(self, rows: Tensor, where: slice) -> Tensor:
        """Return one value for each column."""
        return self._reduce_rows(rows)

    def shares(self) -> None:
        """Return None: no client has a share."""


def trimmed_mean(rows: Tensor, trim_share: float) -> Tensor:
    """Return each column's mean without its floor(βn) largest and smallest, summed in float64."""
    count = len(rows)
    cut = trimmed_count(trim_share, count)
    result = np.empty(rows.shape[1], dtype=np.float32)
    for start, columns in _sorted_columns(rows):
        middle = columns[:, cut : count - cut]
        result[start : start + len(columns)] = middle.mean(axis=1, dtype=np.float64)
    return torch.from_numpy(result)


def coordinate_median(rows: Tensor) -> Tensor:
    """Return each column's median; of an even cohort, the mean of the middle two.

    The rows are finite float32, shape ``(cohort, columns)``, at least one.
    """
    low, high = (len(rows) - 1) // 2, len(rows) // 2
    result = np.empty(rows.shape[1], dtype=np.float32)
    for start, columns in _sorted_columns(rows):
        result[start : start + len(columns)] = (columns[:, low] + columns[:, high]) / 2
    return torch.from_numpy(result)


def _sorted_columns(rows: Tensor) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield blocks of columns as rows, each sorted, with the place of their first."""
    values = rows.numpy()
    for start in range(0, values.shape[1], _BLOCK):
        block = values[:, start : start + _BLOCK].T.copy()
        block.sort(axis=1)
        yield start, block
