"""Weigh whole updates by their distances from each other: Krum and the geometric median.

[Krum] and [RFA] are the papers in ``server.aggregation.robust_settings``.
"""

import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from torch import Tensor

from models.vector.layers import whole_model
from models.vector.schema import Schema
from server.aggregation.robust.pairwise import (
    InnerProducts,
    Matrix,
    distances_from,
    squared_distances,
)
from server.aggregation.robust.reduction import Cohort, weighted_rows

_STILL = 1e-6

Weigh = Callable[[Matrix], Matrix]
"""Turn G, shape ``(cohort, cohort)``, into the weight of each update, shape ``(cohort,)``."""


class Surveyed:
    """The reduction Σ w_k D_k with weights from the inner products of all updates."""

    surveys: ClassVar[bool] = True

    def __init__(self, schema: Schema, weigh: Weigh) -> None:
        self._layers = whole_model(schema)
        self._weigh = weigh
        self._products = InnerProducts()
        self._shares: tuple[tuple[float, ...], ...] = ()

    def survey(self, rows: Tensor, where: slice) -> None:
        """Add one chunk to the inner products."""
        self._products.add(rows)

    def settle(self, cohort: Cohort) -> None:
        """Weigh everybody."""
        weights = self._weigh(self._products.gram)
        self._shares = tuple((float(weight),) for weight in weights)

    def reduce(self, rows: Tensor, where: slice) -> Tensor:
        """Return the weighted sum of the rows."""
        return weighted_rows(rows, where, self._layers, self._shares)

    def shares(self) -> tuple[tuple[str, ...], tuple[tuple[float, ...], ...]]:
        """Return what each client weighed."""
        return tuple(layer.name for layer in self._layers), self._shares


def krum_weights(gram: Matrix, *, attackers: int, kept: int) -> Matrix:
    """Return 1/``kept`` for the updates with the least scores, 0 for all others ([Krum] section 4).

    A score is the sum of the n - f - 2 least squared distances to others, f ``attackers``. Among
    equal scores the lower slot wins. ``gram`` holds the inner products, shape ``(cohort, cohort)``.
    """
    count = len(gram)
    apart = squared_distances(gram)
    np.fill_diagonal(apart, np.inf)
    scores = np.sort(apart, axis=1)[:, : count - attackers - 2].sum(axis=1)
    weights = np.zeros(count)
    weights[np.argsort(scores, kind="stable")[:kept]] = 1 / kept
    return weights


def geometric_median_weights(gram: Matrix, *, smoothing: float, iterations: int) -> Matrix:
    """Return the weights of the updates in their geometric median ([RFA] Algorithm 2).

    No distance counts as smaller than ν, ``smoothing``. It ends early when the point moves by less
    than a millionth of the median distance. ``gram`` has shape ``(cohort, cohort)``.
    """
    weights = np.full(len(gram), 1 / len(gram))
    for _ in range(iterations):
        away = np.maximum(distances_from(gram, weights), smoothing)
        after = (1 / away) / (1 / away).sum()
        step = after - weights
        weights = after
        # Of the point, not of the weights: those of far updates are tiny long before it has come.
        if math.sqrt(max(float(step @ gram @ step), 0.0)) <= _STILL * float(np.median(away)):
            break
    return weights
