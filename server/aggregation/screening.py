"""Set bad updates aside before anything is summed, and count them by reason.

The limit on norms is a multiple of the typical norm, a running quantile that moves half of the way,
on a logarithmic scale, towards each round's own; before the first it is the clipping norm. It is
fixed before a round begins, so nobody's fate depends on others of the round. A client that keeps to
the clipping norm is never set aside for length, unless rounding at random to four bits has
lengthened an update of few large values.

Under a guarantee norms are not followed, only reasons are counted that no honest device gives, and
under ``central`` and ``ftrl`` no count leaves the coordinator.
"""

import math
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum

import numpy as np
import torch
from torch import Tensor

from privacy.clipping.clip import UnusableUpdateError, l2_norm
from server.aggregation.screening_settings import ScreeningSettings

# Rounding for the journey lengthens an update that was clipped before: to the nearest value by less
# than a twentieth, at random, to four bits above all, by more.
_ROUNDED = 1.25


class Reason(StrEnum):
    """The reasons to set an update aside; names of figures, so they never change."""

    NOT_FINITE = "not_finite"
    RANGE = "range"
    NORM = "norm"


class ScreenedError(UnusableUpdateError):
    """Raised when an update is outside what a round accepts."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Screen:
    """The check of one round's updates; ``refused_slots`` are for no log and no file."""

    def __init__(
        self,
        settings: ScreeningSettings,
        *,
        typical_norm: float | None = None,
        clipping_norm: float | None = None,
    ) -> None:
        """Take the typical norm after the round before, and the clipping norm if there is one."""
        self.refused_slots: list[int] = []
        self._settings = settings
        self._before = typical_norm
        known = clipping_norm if typical_norm is None else typical_norm
        factor = settings.norm_factor
        self._limit = math.inf
        if factor is not None and known is not None:
            self._limit = max(factor * known, _ROUNDED * (clipping_norm or 0.0))
        self._norms: list[float] = []
        self._counts: Counter[Reason] = Counter()

    @property
    def counts(self) -> Mapping[str, int]:
        """Return how many were set aside, by reason; only reasons that occurred."""
        return {reason.value: self._counts[reason] for reason in Reason if self._counts[reason]}

    def check(self, values: Tensor, norm: float, beside: Tensor | None = None) -> None:
        """Check one update, finite flat float32, its L2 norm and the part that a method takes.

        Raises:
            ScreenedError: If it is to be set aside.
        """
        parts = [values] if beside is None else [values, beside]
        if beside is not None:
            norm = math.hypot(norm, l2_norm(beside))
        if self._settings.norm_factor is not None:
            self._norms.append(norm)
        largest = self._settings.largest_element
        if largest is not None and max(map(largest_element, parts)) > largest:
            raise ScreenedError(Reason.RANGE, f"elements must be <= {largest:g} in size")
        if norm > self._limit:
            raise ScreenedError(
                Reason.NORM, f"client update must have an L2 norm <= {self._limit:.3g}"
            )

    def refuse(self, slot: int, error: UnusableUpdateError) -> None:
        """Count an update that was set aside, and note its slot."""
        reason = error.reason if isinstance(error, ScreenedError) else Reason.NOT_FINITE
        self._counts[reason] += 1
        self.refused_slots.append(slot)

    @property
    def next_typical_norm(self) -> float | None:
        """Return the typical norm after this round; None if norms are not followed."""
        if not self._norms:
            return self._before
        # Nearest value: a norm that somebody sent, never one between a good and a bad one.
        quantile = float(
            np.quantile(self._norms, self._settings.norm_quantile, method="inverted_cdf")
        )
        if quantile == 0 or self._before is None:
            return quantile or self._before
        return math.sqrt(self._before * quantile)


def largest_element(values: Tensor) -> float:
    """Return the size of the largest element; 0 of none."""
    if not values.numel():
        return 0.0
    # One read and no copy; NaN passes through the minimum.
    least, largest = torch.aminmax(values)
    return max(-float(least), float(largest))
