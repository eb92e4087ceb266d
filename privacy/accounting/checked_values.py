"""Checks of the numbers that a privacy guarantee rests on, each by its name.

NaN fails every check, and so does a missing value: a default would be a guarantee that nobody
chose. Each raises a ValueError with the name, the rule and what arrived.
"""

import math
from collections.abc import Sequence

MOST_BUFFERS = 5
"""Buffers of correlated noise; more of them lower its error by less than a thousandth."""


def check_noise_multiplier(value: float | None, name: str = "noise_multiplier") -> float:
    """Return z, noise standard deviation over L2 sensitivity, > 0 and finite; no unit."""
    return _positive(value, name, "no noise is no guarantee: use mode none")


def check_epsilon(value: float | None, name: str = "epsilon") -> float:
    """Return a privacy budget, > 0 and finite."""
    return _positive(value, name, "nothing can be released at epsilon 0")


def check_sampling_rate(value: float | None, name: str = "sampling_rate") -> float:
    """Return q, the chance of one person in one round, in (0, 1]; 1 is everybody every round."""
    number = _given(value, name)
    if not 0 < number <= 1:
        raise ValueError(f"{name} must be in (0, 1], got {number:g}")
    return number


def check_delta(
    value: float | None, name: str = "delta", *, population_size: int | None = None
) -> float:
    """Return δ, the probability that the bound fails, in (0, 1) and at most 1 / population.

    A larger one would hold for a mechanism that publishes one person's data as they are. The
    population is the enrolled people, at least 1; None if it is not known.
    """
    number = _given(value, name)
    if not 0 < number < 1:
        raise ValueError(f"{name} must be above 0 and below 1, got {number:g}")
    if population_size is not None:
        people = check_count(population_size, "population_size")
        if number * people > 1:
            raise ValueError(
                f"{name} must be at most 1 / population = {1 / people:.3g} for {people} people, "
                f"got {number:g}; lower {name}"
            )
    return number


def check_count(value: int | None, name: str, least: int = 1) -> int:
    """Return a whole number that is at least ``least``."""
    if value is None:
        raise ValueError(f"{name} must be given")
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be >= {least}, got {value}")
    return value


def check_buffers(decays: Sequence[float], scales: Sequence[float]) -> None:
    """Check θ and ω of correlated noise, one of each a buffer (`privacy.accounting.toeplitz`).

    Raises:
        ValueError: If there are none, more than ``MOST_BUFFERS`` or not as many scales as decays;
            if a decay is not in (0, 1) or a scale not above 0; or if the scales sum to more than 1,
            which would void the account.
    """
    if not 1 <= len(decays) <= MOST_BUFFERS:
        raise ValueError(f"buffer_decays must be 1 to {MOST_BUFFERS} numbers, got {len(decays)}")
    if len(scales) != len(decays):
        raise ValueError(
            f"buffer_scales must be as many as buffer_decays, {len(decays)}, got {len(scales)}"
        )
    for decay in decays:
        if not 0 < decay < 1:
            raise ValueError(f"buffer_decays must lie in (0, 1), got {decay}")
    for scale in scales:
        if not 0 < scale < math.inf:
            raise ValueError(f"buffer_scales must be > 0 and finite, got {scale}")
    if sum(scales) > 1:
        raise ValueError(f"buffer_scales must sum to at most 1, got {sum(scales)}")


def _positive(value: float | None, name: str, reason: str) -> float:
    number = _given(value, name)
    if not 0 < number < math.inf:
        raise ValueError(f"{name} must be > 0 and finite, got {number:g}; {reason}")
    return number


def _given(value: float | None, name: str) -> float:
    if value is None:
        raise ValueError(f"{name} must be given: it decides privacy and has no default")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number, got {value!r}")
    return float(value)
