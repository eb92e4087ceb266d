"""Drop the updates that are far off, or oppose, then attend to the rest; copies count as one.

An outlier must go first, since attention would give it the most weight. The combination is our own;
the weights are [FedAtt] Eq. 2 in clipped form (Ji et al., IJCNN 2019, arXiv:1812.07108).
"""

import math
from collections.abc import Sequence
from itertools import repeat
from typing import ClassVar

from torch import Tensor

from models.vector.layers import Layer
from server.aggregation.robust.reduction import Cohort, weighted_rows
from server.aggregation.robust.trims import Angles, FarFromMedian
from server.aggregation.robust_settings import TrimmedAttentiveSettings, trimmed_count
from server.aggregation.weighted.attentive import attentive_weight


class TrimmedAttentive:
    """The attentive mean of the updates that stay, with weights e^{κ(s/C - 1)}.

    Copies share a weight if they count as one; an empty place weighs e^-κ, a dropped update 0.
    """

    surveys: ClassVar[bool] = True

    def __init__(
        self,
        settings: TrimmedAttentiveSettings,
        layers: tuple[Layer, ...],
        clipping_norms: Sequence[float],
        heading: Tensor | None,
    ) -> None:
        """Take C for each layer, in parameter units, and the model's heading if known."""
        self._settings = settings
        self._layers = layers
        self._clips = clipping_norms
        angles = Angles(heading if settings.trim_by == "history" else None)
        far = FarFromMedian() if settings.trim_by == "distance" else None
        self._trim: FarFromMedian | Angles = far or angles
        self._angles = angles if far is None or settings.sybil_cosine is not None else None
        self._shares: tuple[tuple[float, ...], ...] = ()

    def survey(self, rows: Tensor, where: slice) -> None:
        """Show one chunk to what trims."""
        if self._angles is not None:
            self._angles.add(rows, where)
        if isinstance(self._trim, FarFromMedian):
            self._trim.add(rows)  # Last: it overwrites them.

    def settle(self, cohort: Cohort) -> None:
        """Drop what is to be left out and weigh the rest."""
        count = len(cohort.tensor_norms)
        most = trimmed_count(self._settings.trim_share, count)
        staying = frozenset(range(count)) - self._trim.left_out(most)
        votes = self._votes(count)
        weights = [
            [
                vote * self._weight(norms, index)
                for vote, norms in zip(votes, cohort.tensor_norms, strict=True)
            ]
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
            for client in range(count)
        )

    def reduce(self, rows: Tensor, where: slice) -> Tensor:
        """Return the weighted sum of those who stay."""
        return weighted_rows(rows, where, self._layers, self._shares)

    def shares(self) -> tuple[tuple[str, ...], tuple[tuple[float, ...], ...]]:
        """Return what each client weighed in each layer."""
        return tuple(layer.name for layer in self._layers), self._shares

    def _votes(self, count: int) -> list[float]:
        """Return each client's part of a vote: 1, or a share if it is copied."""
        angles, alike = self._angles, self._settings.sybil_cosine
        return [1.0] * count if angles is None or alike is None else angles.votes(alike)

    def _weight(self, norms: tuple[float, ...], index: int) -> float:
        distance = math.hypot(*(norms[tensor] for tensor in self._layers[index].tensors))
        strength = self._settings.attention_strength
        return attentive_weight(distance, self._clips[index], strength)
