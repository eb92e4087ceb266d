"""Average updates scaled down to a multiple of the cohort's median norm.

References:
    [NB] Sun et al., "Can You Really Backdoor Federated Learning?", 2019, arXiv:1911.07963.
"""

import math
import statistics
from typing import ClassVar

from torch import Tensor

from models.vector.schema import Schema
from privacy.clipping.clip import clipping_factor
from server.aggregation.layers import whole_model
from server.aggregation.robust.reduction import Cohort, weighted_rows


class NormBounded:
    """Reduce to the mean of the bounded updates; their norms are known before they are read again.

    Attributes:
        bound: Largest norm as a multiple of the median norm.
    """

    surveys: ClassVar[bool] = False

    def __init__(self, schema: Schema, bound: float) -> None:
        self.bound = bound
        self._layers = whole_model(schema)
        self._shares: tuple[tuple[float, ...], ...] = ()

    def survey(self, rows: Tensor, where: slice) -> None:
        """Look at nothing: norms are measured as updates come."""

    def settle(self, cohort: Cohort) -> None:
        """Bound everybody's norm."""
        norms = [math.hypot(*own) for own in cohort.tensor_norms]
        largest = self.bound * statistics.median(norms)
        self._shares = tuple((clipping_factor(norm, largest) / len(norms),) for norm in norms)

    def reduce(self, rows: Tensor, where: slice) -> Tensor:
        """Return the mean of the bounded rows."""
        return weighted_rows(rows, where, self._layers, self._shares)

    def shares(self) -> tuple[tuple[str, ...], tuple[tuple[float, ...], ...]]:
        """Return what each client was multiplied by."""
        return tuple(layer.name for layer in self._layers), self._shares
