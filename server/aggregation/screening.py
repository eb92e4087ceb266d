"""Set bad updates aside before anything is summed, and count them by reason.

The limit on norms follows the clients: it is a multiple of the typical norm, a running quantile
that moves half of the way, on a logarithmic scale, towards each round's own. It is fixed before a
round begins, so who is set aside depends on nobody else of the round. Where none is known yet the
clipping norm stands for it, if there is one. Nobody who keeps to the clipping norm is set aside for
length, however short most updates have become: the clip bounds them already. Only four bits rounded
at random can lengthen an update of few large values by more than is allowed for.

Under a guarantee norms are not followed; what is counted are reasons that an honest device gives
nobody, and under ``central`` and ``ftrl`` no count leaves the coordinator.
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
    """Say why an update was set aside; names of figures, so they never change."""

    NOT_FINITE = "not_finite"
    RANGE = "range"
    NORM = "norm"


class ScreenedError(UnusableUpdateError):
    """Raised when an update is outside what a round accepts.

    Attributes:
        reason: Which rule it broke.
    """

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Screen:
    """Look at the updates of one round.

    Attributes:
        refused_slots: Slots of those that were set aside, in the order in which they came; for no
            log and no file.
    """

    def __init__(
        self,
        settings: ScreeningSettings,
        *,
        typical_norm: float | None = None,
        clipping_norm: float | None = None,
    ) -> None:
        """Take what was known before the round.

        Args:
            settings: What is set aside.
            typical_norm: What the round before left (``next_typical_norm``); None if nothing.
            clipping_norm: Largest norm of an honest update, where it is clipped.
        """
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
        """Return how many were set aside, by reason; only reasons that there were."""
        return {reason.value: self._counts[reason] for reason in Reason if self._counts[reason]}

    def check(self, values: Tensor, norm: float, beside: Tensor | None = None) -> None:
        """Look at one update that is known to be finite.

        Args:
            values: As it arrived, flat float32, shape ``(elements,)``.
            norm: Its L2 norm.
            beside: The rest of it, where a method takes a part; flat float32.

        Raises:
            ScreenedError: If it is to be set aside.
        """
        parts = [values] if beside is None else [values, beside]
        if beside is not None:
            norm = math.hypot(norm, l2_norm(beside))
        if self._settings.norm_factor is not None:
            self._norms.append(norm)
        largest = self._settings.largest_element
        if largest is not None and max(map(_largest, parts)) > largest:
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
        """Return the typical norm after this round; None where norms are not followed."""
        if not self._norms:
            return self._before
        # Nearest value: a norm that somebody sent, never one between a good and a bad one.
        quantile = float(
            np.quantile(self._norms, self._settings.norm_quantile, method="inverted_cdf")
        )
        if quantile == 0 or self._before is None:
            return quantile or self._before
        return math.sqrt(self._before * quantile)


def _largest(values: Tensor) -> float:
    if not values.numel():
        return 0.0
    # One read and no copy.
    least, largest = torch.aminmax(values)
    return max(-float(least), float(largest))
