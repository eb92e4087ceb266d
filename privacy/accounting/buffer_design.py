"""The buffers whose noise in the last model is least for one plan of rounds and participations.

At a fixed ρ the noise in a prefix sum is proportional to sensitivity times error, both functions
of the decays θ_i and scales ω_i (`privacy.accounting.toeplitz`). C^-1 has buffers too, with decays
θ'_i that lie between those of C, θ_1 > θ'_1 > θ_2 > ...; C follows from both rows of decays by
products ([McMahan, Pillutla], Theorem 1), and every such pair gives a column that never rises. So a
search without constraints finds them: over where the decay rates lie between two bounds.

References:
    [McMahan, Pillutla] "An Inversion Theorem for Buffered Linear Toeplitz (BLT) Matrices and
        Applications to Streaming Differential Privacy", 2025, arXiv:2504.21413.
    McMahan, Xu, Zhang, EMNLP 2024, arXiv:2408.08868 (sensitivity of several participations).
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privacy.accounting.checked_values import MOST_BUFFERS, check_buffers, check_count
from privacy.accounting.toeplitz import (
    buffered_column,
    buffered_prefix_variances,
    buffered_sensitivity_squared,
    prefix_variances,
    toeplitz_sensitivity_squared,
)

FEWEST_BUFFERS = 2
MOST_ROUNDS = 1 << 17
"""Rounds for which a search still ends within minutes."""

_WORTH_A_BUFFER = 0.01
"""Share of the error that one more buffer of the model's size must take away."""

_SLOWEST, _FASTEST = math.log(1e-8), math.log(8.0)
_NARROWEST = 1e-4
_DIGITS = 9
_Floats = NDArray[np.float64]


class Buffers(NamedTuple):
    """Decays θ, slowest first, and scales ω of a matrix C."""

    decays: tuple[float, ...]
    scales: tuple[float, ...]


class _Pair(NamedTuple):
    """C and C^-1, each as decays and scales."""

    decays: _Floats
    scales: _Floats
    inverse_decays: _Floats
    inverse_scales: _Floats


@lru_cache(maxsize=256)
def design_buffers(rounds: int, min_separation: int, max_participation: int) -> Buffers:
    """Return the fewest buffers, at least 2, to which another would add less than a hundredth.

    The numbers are rounded to nine digits, to be written in a federation's file: what a run's noise
    follows from must not change with a library.

    Raises:
        ValueError: If a number is no whole number above 0, or there are more than ``MOST_ROUNDS``.
    """
    for name, value in (
        ("rounds", rounds),
        ("min_separation", min_separation),
        ("max_participation", max_participation),
    ):
        check_count(value, name)
    if rounds > MOST_ROUNDS:
        raise ValueError(
            f"rounds must be at most {MOST_ROUNDS:,} to choose buffers for, got {rounds:,}; "
            "choose them for fewer: the account holds for any number of rounds"
        )
    best, least = None, math.inf
    for count in range(FEWEST_BUFFERS, MOST_BUFFERS + 1):
        found = best_buffers(count, rounds, min_separation, max_participation)
        error = last_error(found, rounds, min_separation, max_participation)
        if best is not None and error > least * (1 - _WORTH_A_BUFFER):
            break
        best, least = found, error
    if best is None:
        raise AssertionError("there is always a first design")
    return best


def best_buffers(count: int, rounds: int, min_separation: int, max_participation: int) -> Buffers:
    """Return ``count`` buffers of least error for some rounds, or fewer if one does nothing."""
    from scipy.optimize import minimize

    def loss(where: _Floats) -> float:
        pair = _pair(where)
        squared = toeplitz_sensitivity_squared(
            buffered_column(pair.decays, pair.scales, rounds),
            min_separation=min_separation,
            max_participation=max_participation,
        )
        inverse = buffered_column(pair.inverse_decays, pair.inverse_scales, rounds)
        return math.log(squared * prefix_variances(inverse)[-1])

    found = minimize(
        loss,
        _start(count, rounds),
        method="L-BFGS-B",
        options={"maxiter": 500, "maxfun": 20_000, "ftol": 1e-9, "gtol": 1e-8},
    )
    pair = _pair(found.x)
    rounded = [
        (round(decay, _DIGITS), round(scale, _DIGITS))
        for decay, scale in zip(pair.decays.tolist(), pair.scales.tolist(), strict=True)
    ]
    kept = [(decay, scale) for decay, scale in rounded if scale > 0] or rounded[:1]
    buffers = Buffers(*(tuple(numbers) for numbers in zip(*kept, strict=True)))
    check_buffers(*buffers)
    return buffers


def last_error(buffers: Buffers, rounds: int, min_separation: int, max_participation: int) -> float:
    """Return the standard deviation of the last model's noise at a total sensitivity of 1.

    Divided by √(2ρ) and times one round's sensitivity it is in parameter units.
    """
    squared = buffered_sensitivity_squared(*buffers, rounds, min_separation, max_participation)
    return math.sqrt(squared * float(buffered_prefix_variances(*buffers, rounds)[-1]))


def _start(count: int, rounds: int) -> _Floats:
    """Return rates spread evenly, as logarithms, between half the run's and that of one round."""
    rates = np.linspace(math.log(0.5 / max(rounds, 2)), math.log(1.5), 2 * count)
    gaps = np.diff(np.concatenate([[_SLOWEST], rates, [_FASTEST]]))
    shares: _Floats = np.log(gaps / gaps.sum())
    return shares


def _pair(where: _Floats) -> _Pair:
    shares = np.exp(where - where.max())
    shares = (1 - _NARROWEST) * shares / shares.sum() + _NARROWEST / len(where)
    rates = np.exp(_SLOWEST + (_FASTEST - _SLOWEST) * np.cumsum(shares)[:-1])
    decays, inverse_decays = np.exp(-rates[0::2]), np.exp(-rates[1::2])
    return _Pair(
        decays,
        _scales(decays, inverse_decays),
        inverse_decays,
        _scales(inverse_decays, decays),
    )


def _scales(decays: _Floats, others: _Floats) -> _Floats:
    """Return ω_i = Π_j (θ_i - θ'_j) / Π_(j≠i) (θ_i - θ_j)."""
    apart = decays[:, None] - decays[None, :]
    np.fill_diagonal(apart, 1.0)
    scales: _Floats = np.prod(decays[:, None] - others[None, :], axis=1) / np.prod(apart, axis=1)
    return scales
