"""The account of correlated noise C^-1 z, C a lower-triangular Toeplitz matrix of few numbers.

The aggregates x of n rounds are released as x + C^-1 z, z independent normals: what follows from
C x + z, one Gaussian mechanism. A person who takes part in the rounds P moves C x by the sum of P's
columns, each times what they can move one aggregate by. Where C's first column is non-negative and
never rises, the largest norm of that sum is that of rounds 1, 1+b, 1+2b, ... (b the least
separation), as many as the limits allow ([Kalinin], Theorem 2; the tests try every pattern).
Any order of participations is covered, so no sampling is assumed, and later aggregates may depend
on earlier releases ([Denisov], Theorem 2.1).

Here C's first column is 1, Σ_i ω_i, Σ_i ω_i θ_i, Σ_i ω_i θ_i², ...: so C^-1 z needs one buffer for
each decay θ_i with its scale ω_i, whatever n is ([Dvijotham], [McMahan]). It never rises where
every θ_i is in (0, 1), every ω_i above 0, and Σ_i ω_i at most 1.

References:
    [Denisov] Denisov et al., "Improved Differential Privacy for SGD via Optimal Private Linear
        Operators on Adaptive Streams", NeurIPS 2022, arXiv:2202.08312.
    [Kalinin] Kalinin, Lampert, "Banded Square Root Matrix Factorization for Differentially Private
        Model Training", NeurIPS 2024, arXiv:2405.13763.
    [Dvijotham] Dvijotham, McMahan, Pillutla, Steinke, Thakurta, "Efficient and Near-Optimal Noise
        Generation for Streaming Differential Privacy", FOCS 2024, arXiv:2404.16706.
    [McMahan] McMahan, Xu, Zhang, "A Hassle-free Algorithm for Private Learning in Practice: Don't
        Use Tree Aggregation, Use BLTs", EMNLP 2024, arXiv:2408.08868.
"""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from privacy.accounting.checked_values import check_buffers, check_count, check_noise_multiplier

_ROUNDING = 1e-12
"""The most by which float64 lets a column rise that does not."""

Column = NDArray[np.float64]
"""The first column of a lower-triangular Toeplitz matrix, float64, shape ``(rounds,)``."""


def buffered_column(decays: Iterable[float], scales: Iterable[float], rounds: int) -> Column:
    """Return the first column of C for decays θ and scales ω."""
    ages = np.arange(check_count(rounds, "rounds") - 1)
    column = np.ones(rounds)
    column[1:] = sum(
        scale * np.exp(math.log(decay) * ages) for decay, scale in zip(decays, scales, strict=True)
    )
    return column


def toeplitz_sensitivity_squared(
    column: Column, *, min_separation: int, max_participation: int
) -> float:
    """Return the largest squared norm by which one person moves C x, a round's reach being 1.

    Args:
        column: C's first column: the rounds of the run.
        min_separation: Least distance in rounds of two participations of one person; 1 is
            every round.
        max_participation: Most participations of one person.

    Raises:
        ValueError: If the column has a negative number or rises: then no pattern is known to be
            the worst.
    """
    check_count(max_participation, "max_participation")
    # A second participation beyond the run is none.
    separation = min(check_count(min_separation, "min_separation"), len(column))
    if not (np.all(column >= 0) and np.all(np.diff(column) <= _ROUNDING)):
        raise ValueError("column must be non-negative and never rise")
    # A row a participation that may have been; sums down the rows add up its columns of C.
    rows = -(-len(column) // separation)
    moved = np.zeros(rows * separation)
    moved[: len(column)] = column
    moved = np.cumsum(moved.reshape(rows, separation), axis=0)
    moved[max_participation:] -= moved[:-max_participation].copy()
    within = moved.ravel()[: len(column)]
    return float(within @ within)


@lru_cache(maxsize=1024)
def buffered_sensitivity_squared(
    decays: tuple[float, ...],
    scales: tuple[float, ...],
    rounds: int,
    min_separation: int,
    max_participation: int,
) -> float:
    """Return `toeplitz_sensitivity_squared` of buffers; it grows with the rounds released."""
    check_buffers(decays, scales)
    return toeplitz_sensitivity_squared(
        buffered_column(decays, scales, rounds),
        min_separation=min_separation,
        max_participation=max_participation,
    )


def buffered_rho(
    noise_multiplier: float,
    decays: tuple[float, ...],
    scales: tuple[float, ...],
    rounds: int,
    *,
    min_separation: int,
    max_participation: int,
) -> float:
    """Return ρ of zero-concentrated differential privacy after some rounds.

    z is the standard deviation of each round's z over the sensitivity of one round's aggregate.
    """
    check_noise_multiplier(noise_multiplier)
    squared = buffered_sensitivity_squared(
        decays, scales, rounds, min_separation, max_participation
    )
    return squared / (2 * noise_multiplier**2)


def prefix_variances(inverse: Column) -> Column:
    """Return the variance of the noise in each prefix sum, in z², from the column of C^-1.

    Entry t - 1 is that of the first t rounds: what a model holds of noise.
    """
    return np.cumsum(np.cumsum(inverse) ** 2)


def buffered_prefix_variances(
    decays: Sequence[float], scales: Sequence[float], rounds: int
) -> Column:
    """Return `prefix_variances` of buffers, by the very recurrence that makes their noise."""
    decay, scale = np.array(decays), np.array(scales)
    held, inverse = np.zeros(len(decay)), np.empty(rounds)
    for at in range(rounds):
        inverse[at] = (at == 0) - scale @ held
        held = decay * held + inverse[at]
    return prefix_variances(inverse)
