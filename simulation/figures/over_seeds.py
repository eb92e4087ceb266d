"""Sum up a figure over the seeds of one setting; a seed without a finite value is lost."""

import math
import statistics
from collections.abc import Mapping
from typing import NamedTuple

from simulation.figures.metrics import Value


class OverSeeds(NamedTuple):
    """A figure over seeds.

    Attributes:
        lost: Seeds without one: the model diverged.
        mean: Mean over ``seeds``; None if there are none.
        spread: Sample standard deviation over ``seeds``; 0 for one seed, None if there are none.
    """

    seeds: tuple[int, ...]
    lost: tuple[int, ...]
    mean: float | None
    spread: float | None


def over_seeds(values: Mapping[int, Value]) -> OverSeeds:
    """Return a figure's mean and spread over seeds; None, as files have it, is infinity or NaN."""
    finite = {
        seed: float(value)
        for seed, value in values.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }
    numbers = list(finite.values())
    spread = statistics.stdev(numbers) if len(numbers) > 1 else 0.0
    return OverSeeds(
        seeds=tuple(finite),
        lost=tuple(seed for seed in values if seed not in finite),
        mean=statistics.fmean(numbers) if numbers else None,
        spread=spread if numbers else None,
    )
