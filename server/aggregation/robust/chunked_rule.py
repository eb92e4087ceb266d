"""The aggregation rule that reads the cohort's updates again, chunk by chunk."""

from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from server.aggregation.closing_workers import ClosingWorkers
from server.aggregation.counting_rule import CountingRule
from server.aggregation.measured_update import Intake, IntakeSettings, Measured
from server.aggregation.robust.kept_updates import KeptUpdates
from server.aggregation.robust.reduction import Cohort, Reduction
from server.aggregation.robust_settings import RobustSettings, check_cohort
from server.aggregation.rule import AggregationWeights
from server.aggregation.screening import Screen

# Columns are split at multiples of every block that a reduction works on, so no block changes.
_ALIGNED = 1 << 14
_ENDED = "the rule has given its result; make a new one for the next round"


class ChunkedRule(CountingRule):
    """A cohort reduced chunk by chunk; the methods are those of ``AggregationRule``.

    Updates lie sealed on disk and are read once, or twice if the reduction needs a survey.
    """

    def __init__(
        self,
        settings: RobustSettings,
        reduction: Reduction,
        expected: IntakeSettings,
        *,
        folder: Path | None = None,
        screen: Screen | None = None,
        workers: ClosingWorkers | None = None,
    ) -> None:
        super().__init__(Intake(expected, screen))
        self._settings = settings
        self._reduction = reduction
        self._workers = workers or ClosingWorkers()
        self._norms: list[tuple[float, ...]] = []
        self._kept: KeptUpdates | None = KeptUpdates(expected.schema.element_count, folder=folder)
        self._is_settled = False

    def add(
        self,
        slot: int,
        client_update: Tensor,
        example_count: int,
        *,
        beside: Tensor | None = None,
        measured: Measured | None = None,
    ) -> None:
        """Measure one update and keep it; the example count plays no part."""
        kept = self._open_kept()
        taken = self._intake.take(
            slot, client_update, example_count, beside=beside, measured=measured
        )
        kept.append(taken.values, taken.factor)
        self._norms.append(taken.tensor_norms)

    def settle(self) -> None:
        """Do nothing: what was added is kept."""

    def result(self) -> Tensor:
        """Return the reduced update, flat float32, and end the rule.

        Raises:
            CohortTooSmallError: If fewer updates came than the rule works with.
            SpoolError: If a kept update can no longer be read.
        """
        kept = self._open_kept()
        self._settle(kept)
        result = torch.empty(self._intake.settings.schema.element_count)
        for where, rows in kept.chunks(self._workers):
            self._workers.run(
                [
                    partial(self._reduce, result[where], rows, where, part)
                    for part in _parts_of(where, self._workers.count)
                ]
            )
        self._kept = None
        kept.close()
        return result

    def weights(self) -> AggregationWeights | None:
        """Return each client's share of each layer; None for a rule without shares."""
        if self._kept is not None:
            self._settle(self._kept)
        shares = self._reduction.shares()
        return None if shares is None else AggregationWeights(tuple(self._intake.slots), *shares)

    def _settle(self, kept: KeptUpdates) -> None:
        if self._is_settled:
            return
        check_cohort(self._settings, self.contribution_count)
        if self._reduction.surveys:
            for where, rows in kept.chunks(self._workers):
                self._reduction.survey(rows, where)
        self._reduction.settle(Cohort(self._norms, self._intake.empty_count))
        self._is_settled = True

    def _reduce(self, result: Tensor, rows: Tensor, where: slice, part: slice) -> None:
        """Reduce some columns of a chunk; no column's result depends on another's."""
        place = slice(where.start + part.start, where.start + part.stop)
        result[part] = self._reduction.reduce(rows[:, part], place)

    def _open_kept(self) -> KeptUpdates:
        if self._kept is None:
            raise ValueError(_ENDED)
        return self._kept


def _parts_of(where: slice, worker_count: int) -> list[slice]:
    """Return the columns of a chunk that each worker reduces, counted from its first."""
    length = where.stop - where.start
    blocks = -(-length // _ALIGNED)
    size = -(-blocks // worker_count) * _ALIGNED
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]
