"""Drop the updates furthest from the coordinate-wise median, then attend to the rest.

Attention gives whoever moved furthest the most weight, so an outlier must go before it is weighed:
[FedAtt]'s rule after [Median]'s estimate of where the cohort is. The combination is our own.

References:
    [FedAtt] Ji et al., IJCNN 2019, arXiv:1812.07108, Eq. 2 (here in its clipped form).
    [Median] Yin et al., ICML 2018, arXiv:1803.01498, Definition 1.
"""

import math
from collections.abc import Sequence
from itertools import repeat
from typing import ClassVar

import numpy as np
from torch import Tensor

from server.aggregation.attentive import attentive_weight
from server.aggregation.coordinate_wise import coordinate_median
from server.aggregation.layers import Layer
from server.aggregation.reduction import Cohort, weighted_rows
from server.aggregation.robust_settings import TrimmedAttentiveSettings, trimmed_count


class TrimmedAttentive:
    """Reduce to the attentive mean of those who stay.

    Weights are e^{κ(s/C - 1)} as in ``server.aggregation.attentive``; an empty place weighs e^-κ,
    a dropped update nothing.
    """

    surveys: ClassVar[bool] = True

    def __init__(
        self,
        settings: TrimmedAttentiveSettings,
        layers: tuple[Layer, ...],
        clipping_norms: Sequence[float],
    ) -> None:
        """Take the rule's settings.

        Args:
            settings: What is dropped, and how the rest is weighed.
            layers: Units of weighting.
            clipping_norms: C for each layer, in parameter units.
        """
        self._settings = settings
        self._layers = layers
        self._clips = clipping_norms
        self._squares: list[float] = []
        self._shares: tuple[tuple[float, ...], ...] = ()

    def survey(self, rows: Tensor) -> None:
        """Add one chunk to everybody's squared distance from the median."""
        # In place: the rows are read again for every pass.
        away = rows.sub_(coordinate_median(rows)).numpy()
        squares = np.vecdot(away, away).astype(np.float64).tolist()
        before = self._squares or [0.0] * len(squares)
        self._squares = [old + new for old, new in zip(before, squares, strict=True)]

    def settle(self, cohort: Cohort) -> None:
        """Drop the furthest and weigh the rest."""
        staying = self._staying()
        weights = [
            [self._weight(norms, index) for norms in cohort.tensor_norms]
            for index in range(len(self._layers))
        ]
        empty = attentive_weight(0.0, 1.0, self._settings.attention_strength)
        totals = [
            math.fsum((*(of_layer[k] for k in staying), *repeat(empty, cohort.empty_count)))
            for of_layer in weights
        ]
        self._shares = tuple(
            tuple(
                of_layer[client] / total if client in staying else 0.0
                for of_layer, total in zip(weights, totals, strict=True)
            )
            for client in range(len(cohort.tensor_norms))
        )

    def reduce(self, rows: Tensor, where: slice) -> Tensor:
        """Return the weighted sum of those who stay."""
        return weighted_rows(rows, where, self._layers, self._shares)

    def shares(self) -> tuple[tuple[str, ...], tuple[tuple[float, ...], ...]]:
        """Return what each client weighed in each layer."""
        return tuple(layer.name for layer in self._layers), self._shares

    def _staying(self) -> frozenset[int]:
        """Return who is not among the furthest; of equal distances the lower slot stays."""
        count = len(self._squares)
        nearest = sorted(range(count), key=lambda client: self._squares[client])
        return frozenset(nearest[: count - trimmed_count(self._settings.trim_share, count)])

    def _weight(self, norms: tuple[float, ...], index: int) -> float:
        distance = math.hypot(*(norms[tensor] for tensor in self._layers[index].tensors))
        strength = self._settings.attention_strength
        return attentive_weight(distance, self._clips[index], strength)
