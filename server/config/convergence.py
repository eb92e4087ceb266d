"""Stop a run when its figure no longer improves, and remember the round at which it was best.

The figure is a perplexity from public text or from devices' counts. Under a guarantee those counts
are noised and paid for from the run's budget (``server.budget.noised_evaluations``): else the
choice of the model would leak what no noise covers.
"""

import math
from dataclasses import dataclass

import msgspec


class ConvergenceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The criterion by which a run has converged.

    Attributes:
        patience: Evaluations in a row without improvement after which the run stops.
        least_improvement: Relative fall in perplexity that counts as an improvement, in [0, 1).
    """

    patience: int
    least_improvement: float = 0.0

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise ValueError(f"patience must be >= 1, got {self.patience}")
        if not 0 <= self.least_improvement < 1:
            raise ValueError(f"least_improvement must be in [0, 1), got {self.least_improvement}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The meaning of an evaluation: whether it is the best so far, and whether the run stops."""

    is_best: bool
    has_converged: bool


class ConvergenceTracker:
    """The lowest perplexity so far and its round; infinity and None before the first evaluation."""

    def __init__(self, settings: ConvergenceSettings | None) -> None:
        self.best_round: int | None = None
        self.best_perplexity = math.inf
        self._settings = settings
        self._mark = math.inf
        self._without_improvement = 0

    def observe(self, round_number: int, perplexity: float) -> Verdict:
        """Take in one evaluation: a perplexity of at least 1, infinity for a model that diverged.

        After a restart, give the recorded evaluations again in order: the verdicts repeat.

        Raises:
            ValueError: If the perplexity is below 1 or NaN.
        """
        if not perplexity >= 1:
            raise ValueError(f"perplexity must be >= 1, got {perplexity}")
        is_best = perplexity < self.best_perplexity
        if is_best:
            self.best_round, self.best_perplexity = round_number, perplexity
        return Verdict(is_best, self._has_converged(perplexity))

    def _has_converged(self, perplexity: float) -> bool:
        # Measured against the last real improvement, so that many small steps that add up to one
        # are not mistaken for a standstill.
        if self._settings is None:
            return False
        if perplexity < self._mark * (1 - self._settings.least_improvement):
            self._mark = perplexity
            self._without_improvement = 0
        else:
            self._without_improvement += 1
        return self._without_improvement >= self._settings.patience
