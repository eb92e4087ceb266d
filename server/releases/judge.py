"""The judge of models by their figures: which is the best so far, and whether the run converged."""

import logging
import math
from collections.abc import Mapping, Sequence

from torch import Tensor

from models.plan.plan import Plan
from models.plan.release_record import Metric
from models.tasks.metrics import Counts
from server.config.convergence import ConvergenceTracker
from server.config.federation import FederationConfig
from server.releases.files import ReleaseFolder
from server.releases.public_evaluation import PublicText

_LOG = logging.getLogger(__name__)


class Judge:
    """The figures of one run's models, and whether it has met its convergence criterion."""

    def __init__(self, config: FederationConfig, public_text: PublicText | None) -> None:
        self.has_converged = False
        self._evaluation = config.evaluation
        self._public_text = public_text
        self._tracker = ConvergenceTracker(config.convergence)

    @property
    def best_round(self) -> int | None:
        """Return the round of the best model so far; None before the first evaluation."""
        return self._tracker.best_round

    def evaluate(self, round_number: int, plan: Plan, parameters: Tensor) -> dict[str, Metric]:
        """Return the figures of a round's model on the public text; nothing if none is due."""
        if self._public_text is None or not self._evaluation.is_due(round_number):
            return {}
        counts = self._public_text.score(plan, parameters)
        return figures_of(counts, of_words=plan.vocabulary is not None)

    def observe(self, round_number: int, figures: Mapping[str, Metric]) -> bool:
        """Take in an evaluation, if there was one; return whether it is the best so far."""
        if round_number < 1 or "perplexity" not in figures:
            return False
        perplexity = figures["perplexity"]
        # JSON has no infinity: what is missing was too large.
        value = math.inf if perplexity is None else float(perplexity)
        verdict = self._tracker.observe(round_number, value)
        self.has_converged = verdict.has_converged
        return verdict.is_best

    def point_to_best(self, releases: ReleaseFolder) -> None:
        """Point ``best`` to the best round so far, where a crash came between the two."""
        best = self.best_round
        if not self._evaluation.keep_best or best in (None, releases.pointed("best")):
            return
        if releases.path(best).is_dir():
            releases.point("best", best)
            _LOG.info("round %s is the best so far, which releases/best did not say", best)
        else:
            _LOG.warning(
                "releases/best cannot name the best model so far: round %s is not kept any more",
                best,
            )


def figures_of(counts: Counts, *, of_words: bool) -> dict[str, Metric]:
    """Return the figures that a release makes of counts."""
    figures = counts.figures(of_words=of_words)
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}


def figures_of_devices(reports: Sequence[Counts], *, of_words: bool) -> dict[str, Metric]:
    """Return the median of each figure over devices, whatever one of them reports; nothing of none.

    Between two middle ones it is the worse, so of two devices none can praise a model alone. A
    device whose counts make no such figure is left out of its median.
    """
    by_name: dict[str, list[float]] = {}
    for counts in reports:
        for name, value in counts.figures(of_words=of_words).items():
            by_name.setdefault(name, []).append(value)
    return {name: _worse_median(name, values) for name, values in by_name.items()}


def _worse_median(name: str, values: Sequence[float]) -> Metric:
    less_is_better = name in ("perplexity", "unknown_words")
    middle = sorted(values)[(len(values) - (not less_is_better)) // 2]
    return middle if math.isfinite(middle) else None


def in_words(figures: Mapping[str, Metric]) -> str:
    """Return figures for a line of the log."""
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in figures.items()
    )
