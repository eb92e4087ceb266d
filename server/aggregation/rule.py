"""The protocol of an aggregation rule.

A rule sees the cohort's updates one at a time, in slot order, and keeps memory that does not grow
with the cohort; one that reads by chunk keeps the updates sealed on disk, and reads a chunk of all
of them at a time.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class AggregationWeights:
    """Say how much each client counted. Shown only where the noise mode promises nothing.

    Attributes:
        slots: The clients' slots, rising.
        layers: Names of the weighted layers.
        shares: Share of each client in each layer, one row a client, one column a layer. A column
            sums to 1, less what empty slots weigh.
    """

    slots: tuple[int, ...]
    layers: tuple[str, ...]
    shares: tuple[tuple[float, ...], ...]


class AggregationRule(Protocol):
    """Reduce the client updates of one round to one update."""

    @property
    def contribution_count(self) -> int:
        """Return how many clients were added."""
        ...

    @property
    def clipped_count(self) -> int:
        """Return how many of them were above the clipping norm, which no honest client is."""
        ...

    @property
    def fitting_count(self) -> int:
        """Return how many fitted without being clipped; 0 unless updates tell. For no log."""
        ...

    def add(
        self,
        slot: int,
        client_update: Tensor,
        example_count: int,
        *,
        beside: Tensor | None = None,
    ) -> None:
        """Take one client's update, scaled down to the clipping norm if it is above it.

        Args:
            slot: Position of the client in the cohort; each slot at most once, rising.
            client_update: Trained minus received parameters, contiguous float32, shape
                ``(elements,)``, clean norms behind it where they arrive. Not changed, not kept.
            example_count: Target tokens the client trained on, at least 1.
            beside: What the client sent with it for the method to take; screened as a part of the
                update.

        Raises:
            ValueError: If the slot is out of order or has no place, the shape or dtype is wrong, or
                the update holds NaN or infinity; the rule is then as it was.
        """
        ...

    def result(self) -> Tensor:
        """Return the aggregated update, flat, shape ``(elements,)``, float32 unless asked else.

        The rule's own memory becomes the answer, so this ends the rule.

        Raises:
            ValueError: If no client was added, or the rule has ended.
        """
        ...

    def weights(self) -> AggregationWeights | None:
        """Return what each client weighed, or None where a rule has no weights."""
        ...
