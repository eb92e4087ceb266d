"""The aggregation rule Σ w_k D_k / Σ w_k, for any weighing."""

import torch
from torch import Tensor

from server.aggregation.closing_workers import ClosingWorkers
from server.aggregation.counting_rule import CountingRule
from server.aggregation.measured_update import Intake, IntakeSettings, Measured
from server.aggregation.noised_sums import SumsForm
from server.aggregation.rule import AggregationWeights
from server.aggregation.screening import Screen
from server.aggregation.weighted.weighing import Weighing
from server.aggregation.weighted.weighted_sum import WeightedSum


class WeightedRule(CountingRule):
    """A weighted mean that streams; the methods are those of ``AggregationRule``."""

    def __init__(
        self,
        weighing: Weighing,
        expected: IntakeSettings,
        *,
        under_guarantee: bool = False,
        screen: Screen | None = None,
        form: SumsForm | None = None,
        workers: ClosingWorkers | None = None,
    ) -> None:
        """Start without updates; with ``form`` the result is a vector of sums, not their mean."""
        super().__init__(Intake(expected, screen, under_guarantee=under_guarantee))
        self._weighing = weighing
        self._form = form
        self._may_be_empty = form is not None or (under_guarantee and weighing.empty_weight > 0)
        dtype = torch.float64 if under_guarantee else torch.float32
        length = expected.schema.element_count if form is None else form.length
        self._sum = WeightedSum(weighing.layers, length, dtype, workers=workers)

    def add(
        self,
        slot: int,
        client_update: Tensor,
        example_count: int,
        *,
        beside: Tensor | None = None,
        measured: Measured | None = None,
    ) -> None:
        """Measure one update, weigh it and add it: two reads of it, no copy."""
        self._sum.open_sum()
        taken = self._intake.take(
            slot, client_update, example_count, beside=beside, measured=measured
        )
        weights = self._weighing.weigh(taken, example_count)
        self._sum.add(taken.values, weights, factor=taken.factor)

    def settle(self) -> None:
        """Finish all additions."""
        self._sum.settle()

    def result(self) -> Tensor:
        """Return the weighted mean, in the sum's own memory; end the rule.

        Under a guarantee it is zero if every place is empty and an empty place weighs something.
        Where sums are noised it is those, of updates and then of weights, and no place weighs.
        """
        if not self._intake.slots and not self._may_be_empty:
            raise ValueError("a round must have at least one client update, got none")
        if self._form is not None:
            totals = self._sum.totals(empty_count=0, empty_weight=0.0)
            return self._form.fill(self._sum.close(), totals)
        return self._sum.divide(self._totals())

    def weights(self) -> AggregationWeights | None:
        """Return each client's share of each layer."""
        names = tuple(layer.name for layer in self._sum.layers)
        slots = tuple(self._intake.slots)
        return AggregationWeights(slots, names, self._sum.shares(self._totals()) if slots else ())

    def _totals(self) -> list[float]:
        return self._sum.totals(
            empty_count=self._intake.empty_count, empty_weight=self._weighing.empty_weight
        )
