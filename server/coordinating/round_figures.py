"""The figures of a closed round, for its release."""

from collections.abc import Mapping

from models.plan.plan import Plan
from models.plan.release_record import Metric
from models.plan.stages import stage_figures
from privacy.accounting.onlookers import Epsilons
from server.aggregation.noised_sums import figures_of_weights
from server.budget.spent_figures import figures_of_spent
from server.closing.close import Closed
from server.machine.answers import Close


def figures_of_updates(
    order: Close, closed: Closed, refusals: Mapping[str, int]
) -> dict[str, Metric]:
    """Return the counts over a round's updates as they came; no noise covers them."""
    # Nobody sees under a mask whose update should have been clipped.
    clipped = {} if closed.clipped_count is None else {"clipped": closed.clipped_count}
    return {
        "contributions": closed.contribution_count,
        **clipped,
        **{f"refused_{code}": count for code, count in refusals.items()},
        **{f"screened_{reason}": count for reason, count in closed.screened.items()},
    }


def figures_to_go_on(plan: Plan, closed: Closed, spent: Epsilons | None) -> dict[str, Metric]:
    """Return the privacy spent, and what the next round is made from after a restart."""
    figures: dict[str, Metric] = {**stage_figures(plan), **figures_of_spent(plan.privacy, spent)}
    if closed.next_clipping_norm is not None:
        figures["clipping_norm"] = plan.privacy.clipping_norm
        figures["next_clipping_norm"] = closed.next_clipping_norm
    if closed.next_typical_norm is not None:
        figures["next_typical_norm"] = closed.next_typical_norm
    return figures | figures_of_weights(closed.weights_so_far)
