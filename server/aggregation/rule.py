"""The protocol of an aggregation rule.

A rule sees the cohort's updates one at a time, in slot order, and keeps memory that does not grow
with the cohort. Two rules that saw neighbouring slot ranges merge into one, so a round can be
closed in shards along a fixed tree.
"""

from typing import ClassVar, Protocol, Self

from torch import Tensor


class AggregationRule(Protocol):
    """Reduce the client updates of one round to one update.

    Attributes:
        passes: How often each update is read.
        by_chunk: Whether the rule reads chunk i of every update before chunk i + 1 of any; such a
            rule needs memory for the cohort times one chunk instead of one model.
    """

    passes: ClassVar[int]
    by_chunk: ClassVar[bool]

    def add(self, slot: int, client_update: Tensor, example_count: int) -> None:
        """Take one client's update.

        Args:
            slot: Position of the client in the cohort; each slot at most once, rising.
            client_update: Trained minus received parameters, flat float32, shape ``(elements,)``;
                already clipped where the rule needs it. Not changed.
            example_count: Target tokens the client trained on, at least 1.

        Raises:
            ValueError: If the slot is out of range or out of order, the shape is wrong, or the
                update holds NaN or infinity.
        """
        ...

    def merge(self, other: Self) -> None:
        """Take over what ``other``, a rule of the same settings, has seen of later slots.

        Raises:
            ValueError: If the two saw overlapping slots or have different settings.
        """
        ...

    def result(self) -> Tensor:
        """Return the aggregated update, flat float32, shape ``(elements,)``.

        Raises:
            ValueError: If no client was added.
        """
        ...
