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
        return figures_of(self._public_text.score(plan, parameters))

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


def figures_of(counts: Counts) -> dict[str, Metric]:
    """Return the figures that a release makes of counts."""
    perplexity = counts.perplexity
    return {
        "perplexity": perplexity if math.isfinite(perplexity) else None,
        "top1_recall": counts.top1_recall,
        "top3_recall": counts.top3_recall,
    }


def figures_of_devices(reports: Sequence[Counts]) -> dict[str, Metric]:
    """Return the median of each figure over devices, whatever one of them reports; nothing of none.

    Between two middle ones it is the worse, so of two devices none can praise a model alone.
    """
    if not reports:
        return {}
    perplexities, top1, top3 = (
        sorted(getattr(counts, name) for counts in reports)
        for name in ("perplexity", "top1_recall", "top3_recall")
    )
    perplexity, lower = perplexities[len(reports) // 2], (len(reports) - 1) // 2
    return {
        "perplexity": perplexity if math.isfinite(perplexity) else None,
        "top1_recall": top1[lower],
        "top3_recall": top3[lower],
    }


def in_words(figures: Mapping[str, Metric]) -> str:
    """Return figures for a line of the log."""
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in figures.items()
    )
