"""The protocol of an aggregation rule."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from server.aggregation.measured_update import Measured


@dataclass(frozen=True)
class AggregationWeights:
    """How much each client counted; shown only if the noise mode promises nothing.

    ``shares`` has a row a client and a column a layer, which sums to 1 less what empty slots weigh.
    """

    slots: tuple[int, ...]
    layers: tuple[str, ...]
    shares: tuple[tuple[float, ...], ...]


class AggregationRule(Protocol):
    """A reduction of one round's updates to one, in memory that does not grow with the cohort."""

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
        measured: Measured | None = None,
    ) -> None:
        """Take one client's update, scaled down to the clipping norm if it is above it.

        Args:
            slot: Position of the client in the cohort; each slot at most once, rising.
            client_update: Contiguous float32, shape ``(elements,)``, clean norms behind it if they
                arrive. Not changed; read until as many more were added as the workers' ``lag``.
            example_count: Target tokens the client trained on, at least 1.
            beside: The update's part for the personalisation method; it is only screened.
            measured: What ``IntakeSettings.measure`` returned for it, if that was done ahead.

        Raises:
            ValueError: If the slot is out of order or has no place, the shape or dtype is wrong, or
                the update holds NaN or infinity; the rule is then as it was.
        """
        ...

    def settle(self) -> None:
        """Finish all that still reads an update."""
        ...

    def result(self) -> Tensor:
        """Return the aggregated update, shape ``(elements,)``, in the rule's memory; end the rule.

        Raises:
            ValueError: If no client was added, or the rule has ended.
        """
        ...

    def weights(self) -> AggregationWeights | None:
        """Return what each client weighed, or None for a rule without weights."""
        ...
