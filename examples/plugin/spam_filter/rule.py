"""An aggregation rule of one's own: the mean of coordinates that were clamped first. No torch."""

import math
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from torch import Tensor


class ClampedMean(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The mean of every coordinate after each client's was clamped to [-largest, largest].

    It promises nothing against bad clients, and no bound on what one person moves is proved for it
    in sotto, so no guarantee goes with it.

    Attributes:
        largest: Largest step of one client in one coordinate, in parameter units.
    """

    largest: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.largest < math.inf:
            raise ValueError(f"largest must be > 0 and finite, got {self.largest}")

    @property
    def least_cohort(self) -> int:
        """Return 1."""
        return 1

    def tolerated(self, cohort_size: int) -> int:
        """Return 0."""
        return 0

    def reduce_rows(self, rows: "Tensor") -> "Tensor":
        """Return each column's mean."""
        return rows.clamp(-self.largest, self.largest).mean(dim=0)
