"""Epsilon from the distribution of the privacy loss (PLD), by ``dp-accounting``.

Losses are rounded so that epsilon never comes out too small (connect the dots), and composed by
FFT. The grid follows the mechanism: fine enough for one weak round among 100,000, coarse enough
that a hopeless setting is still told in seconds.

References:
    Doroshenko et al., "Connect the Dots: Tighter Discrete Approximations of Privacy Loss
        Distributions", PoPETs 2022, arXiv:2207.04380.
    Koskela et al., "Computing Tight Differential Privacy Guarantees Using FFT", AISTATS 2020,
        arXiv:1906.03049.
"""

import math
from functools import lru_cache, reduce
from typing import Any

from privacy.accounting.tally import Tally

_POINTS_A_ROUND = 2e4
_POINTS_A_DEVIATION = 30
_ROUNDING_ERROR = 1e-3
_MOST_POINTS = 4e6


def epsilon_by_pld(total: Tally, delta: float, *, coarseness: float = 1.0) -> float:
    """Return ε at δ in (0, 1) of all Gaussian releases in a tally, never too small;
    correlated noise is left out.


    ``coarseness`` is how many times wider than usual the grid is: faster, and ε larger by little.
    """
    mechanisms = gaussian_mechanisms(total)
    if not mechanisms:
        return 0.0
    interval = _interval(mechanisms) * coarseness
    parts = [_one_round(z, q, interval).self_compose(times) for z, q, times in mechanisms]
    whole = reduce(lambda left, right: left.compose(right), parts)
    return float(whole.get_epsilon_for_delta(delta))


def gaussian_mechanisms(total: Tally) -> list[tuple[float, float, int]]:
    """Return (z, q, times) of each kind of Gaussian release; q = 1 stands at most once."""
    sampled = [(z, q, times) for (z, q), times in sorted(total.sampled.items())]
    if total.inverse_square == 0:
        return sampled
    return [*sampled, (total.inverse_square**-0.5, 1.0, 1)]


# Any: dp-accounting has no types.
@lru_cache(maxsize=64)
def _one_round(z: float, q: float, interval: float) -> Any:
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    return from_gaussian_mechanism(z, value_discretization_interval=interval, sampling_prob=q)


def _interval(mechanisms: list[tuple[float, float, int]]) -> float:
    """Return the width of the grid for the loss, in nats: a power of 2, so that rounds share it."""
    finest = min(_finest(z, q, times) for z, q, times in mechanisms)
    mean = sum(times * _mean(z, q) for z, q, times in mechanisms)
    deviation = math.sqrt(sum(times * _variance(z, q) for z, q, times in mechanisms))
    widest = max(_reach(z) for z, _, _ in mechanisms)
    width = max(finest, (mean + 20 * deviation) / _MOST_POINTS, widest / _MOST_POINTS)
    return float(2.0 ** math.floor(math.log2(width)))


def _finest(z: float, q: float, times: int) -> float:
    """Return a width that resolves the loss of one round.

    A grid that is wide beside the deviation s of one round adds about width^2 / s to epsilon in
    each round; a few rounds can bear that, many cannot.
    """
    deviation = math.sqrt(_variance(z, q))
    bearable = math.sqrt(_ROUNDING_ERROR * deviation / times)
    return min(_reach(z) / _POINTS_A_ROUND, max(deviation / _POINTS_A_DEVIATION, bearable))


def _reach(z: float) -> float:
    """Return about the largest loss of one round that the grid must hold."""
    return 0.5 / z**2 + 8 / z


def _mean(z: float, q: float) -> float:
    """Return at least the mean loss of one round: χ² divergence bounds it, and so does q = 1."""
    return min(q**2 * math.expm1(min(z**-2, 700)), 0.5 / z**2)


def _variance(z: float, q: float) -> float:
    """Return about the variance of one round's loss; for q = 1 exactly."""
    return min(q**2 * math.expm1(min(z**-2, 700)), z**-2)
