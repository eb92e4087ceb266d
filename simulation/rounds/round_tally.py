"""Count what happens in a simulated round, and put it into figures."""

import math
import statistics
from collections.abc import Collection

from server.closing.close import Closed
from simulation.figures.metrics import Value
from simulation.workers.jobs import Trained


class Tally:
    """Counts of what happened in a round, over all its attempts."""

    def __init__(self) -> None:
        self.cohort = 0
        self.diverged = 0
        self.screened = 0
        self.attacked: dict[str, Value] = {}
        self.tokens = 0
        self.loss_sum = 0.0
        self.loss_tokens = 0
        self.norms: list[float] = []

    def add(self, client: Trained, tokens: int) -> None:
        """Count a usable update and the target tokens that it was trained on, repeats included."""
        self.tokens += tokens
        self.norms.append(client.update_norm)
        if not math.isnan(client.mean_loss):
            self.loss_sum += client.mean_loss * tokens
            self.loss_tokens += tokens

    def figures(self, closed: Closed) -> dict[str, Value]:
        """Return a round's figures, the loss over clients with one: DP-SGD may draw no sentence."""
        return {
            "cohort": self.cohort,
            "contributions": closed.contribution_count,
            "diverged": self.diverged,
            "train_loss": self.loss_sum / self.loss_tokens if self.loss_tokens else None,
            "update_norm": statistics.fmean(self.norms),
            "largest_update_norm": max(self.norms),
            "clipped": closed.clipped_count,
            "largest_weight": largest_weight(closed),
            **screened_figures(closed),
            **self.attacked,
        }


def screened_figures(closed: Closed) -> dict[str, Value]:
    """Return how many updates were set aside, by reason, and what the next round starts from."""
    figures: dict[str, Value] = {
        f"screened_{reason}": count for reason, count in closed.screened.items()
    }
    if closed.next_typical_norm is not None:
        figures["next_typical_norm"] = closed.next_typical_norm
    return figures


def attack_figures(
    closed: Closed, sent: Collection[int], refused_slots: Collection[int]
) -> dict[str, Value]:
    """Return how many attackers sent an update, how many were set aside, and the others' weight."""
    return {
        "attackers": len(sent),
        "attackers_screened": len(set(sent) & set(refused_slots)),
        "attackers_weight": weight_of(closed, sent),
    }


def weight_of(closed: Closed, slots: Collection[int]) -> float | None:
    """Return the slots' summed share of a layer, as the mean over layers; None without shares."""
    weights = closed.aggregation_weights
    if weights is None or not weights.layers:
        return None
    theirs = (row for slot, row in zip(weights.slots, weights.shares, strict=True) if slot in slots)
    return sum(map(sum, theirs)) / len(weights.layers)


def largest_weight(closed: Closed) -> float | None:
    """Return the largest share of one client in one layer; None where shares are not shown."""
    weights = closed.aggregation_weights
    return None if weights is None else max(max(row) for row in weights.shares)
