"""The least noise that keeps a run within a privacy budget."""

import math
from collections.abc import Callable

from privacy.accounting.accountant import epsilon_of_tally
from privacy.accounting.checked_values import (
    check_count,
    check_delta,
    check_epsilon,
    check_sampling_rate,
)
from privacy.accounting.tally import Tally, gaussian_tally, masked_tally
from privacy.accounting.tree import epsilon_of_rho

_STEP = 1e-4
_LEAST, _MOST = 1e-2, 1e7
_FAST = 4.0


def noise_multiplier_for(
    target_epsilon: float, delta: float, rounds: int, sampling_rate: float
) -> float:
    """Return the least noise multiplier z that keeps ``rounds`` releases within ε at δ.

    A ``sampling_rate`` q in (0, 1) stands for a draw by secret coin flips. z is at least 0.01, at
    most 0.02 % too large, and rounded up to a multiple of 0.0001. Raises ValueError if a value is
    missing or out of its range, or no z below 10^7 is enough.
    """
    check_count(rounds, "rounds")
    check_sampling_rate(sampling_rate)
    return _least(target_epsilon, delta, lambda z: gaussian_tally(z, sampling_rate, rounds))


def masked_noise_multiplier_for(target_epsilon: float, delta: float, rounds: int) -> float:
    """Return the least z of ``rounds`` sums under masks, as `noise_multiplier_for`.

    Against the coordinator ``rounds`` are attempts.
    """
    check_count(rounds, "rounds")
    return _least(target_epsilon, delta, lambda z: masked_tally(z, rounds))


def _least(target_epsilon: float, delta: float, run: Callable[[float], Tally]) -> float:
    """Return the least z, in steps of 0.0001, at which a run keeps within ε at δ."""
    check_epsilon(target_epsilon, "target_epsilon")
    check_delta(delta)

    def excess(log_z: float) -> float:
        epsilon = epsilon_of_tally(run(math.exp(log_z)), delta, coarseness=_FAST)
        # Clamped, so that the search can do sums where epsilon is 0 or infinite.
        return math.log(min(max(epsilon, 1e-12), 1e12) / target_epsilon)

    def fits(steps: int) -> bool:
        return epsilon_of_tally(run(steps * _STEP), delta) <= target_epsilon

    # A coarse grid finds the place; the usual one, which other commands report by, confirms it.
    steps = math.ceil(round(math.exp(_crossing(excess)) / _STEP, 6))
    while not fits(steps):
        steps = math.ceil(steps * (1 + _STEP))
    return round(steps * _STEP, 4)


def correlated_noise_multiplier_for(
    target_epsilon: float, delta: float, sensitivity_squared: float
) -> float:
    """Return the least z of each draw that keeps correlated noise within ε at δ.

    The squared sensitivity is that of the whole run, in units of one round's: of
    `tree_sensitivity_squared` or `buffered_sensitivity_squared`. z is rounded up to a multiple of
    0.0001. Raises ValueError if a value is missing or out of its range, or no z below 10^7 is
    enough.
    """
    check_epsilon(target_epsilon, "target_epsilon")
    check_delta(delta)

    def rho(z: float) -> float:
        return sensitivity_squared / (2 * z**2)

    def excess(log_z: float) -> float:
        epsilon = epsilon_of_rho(rho(math.exp(log_z)), delta)
        return math.log(max(epsilon, 1e-12) / target_epsilon)

    steps = math.ceil(round(math.exp(_crossing(excess)) / _STEP, 6))
    while epsilon_of_rho(rho(steps * _STEP), delta) > target_epsilon:
        steps += 1
    return round(steps * _STEP, 4)


def _crossing(excess: Callable[[float], float]) -> float:
    """Return ln z where epsilon falls through its target, or the least ln z."""
    from scipy.optimize import brentq

    low, high = math.log(0.5), 0.0
    while excess(high) > 0:
        if high > math.log(_MOST):
            raise ValueError("target_epsilon must be reachable with a noise_multiplier below 1e7")
        low, high = high, high + math.log(4)
    while excess(low) < 0:
        if low < math.log(_LEAST):
            return math.log(_LEAST)
        low, high = low - math.log(2), low
    return float(brentq(excess, low, high, xtol=_STEP / 2))
