"""The figures of a round that say what the run has spent, deployed or simulated."""

from privacy.accounting.onlookers import Epsilons
from privacy.noise.plan_events import budgets_of
from privacy.noise.settings import PrivacySettings


def figures_of_spent(privacy: PrivacySettings, spent: Epsilons | None) -> dict[str, float]:
    """Return δ and ε against readers, and ``coordinator_epsilon`` where that has a budget too.

    Empty where nothing is promised.
    """
    if spent is None:
        return {}
    figures = {"epsilon": spent.readers, "delta": spent.delta}
    if len(budgets_of(privacy)) > 1:
        figures["coordinator_epsilon"] = spent.coordinator
    return figures
