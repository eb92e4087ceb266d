"""A bound on epsilon from below, by guessing who took part in one run.

Each of m canaries takes part by a coin of its own. From the release alone an auditor guesses some
of the coins. If the mechanism is (ε, δ)-private for one canary, guessing right is hardly easier
than under randomised response: with W ~ Bin(r, e^ε/(1 + e^ε)),

    P[at least v of r guesses are right] ≤ P[W ≥ v] + 2mδ max_{1≤i≤m} P[v - i ≤ W < v]/i.

The largest ε at which that is below the failure rate is refuted; so the true ε is above it with
that confidence, whatever the mechanism, and whatever the scores are.

A bound below the claim refutes nothing. It is no estimate: an epsilon of 5 may show a bound of 1. A
bound above the claim proves that the claim is false. Since the second term grows with m, δ must be
far below failure_rate / m for the bound to be of use.

References:
    [Steinke] Steinke, Nasr, Jagielski, "Privacy Auditing with One (1) Training Run", NeurIPS 2023,
        arXiv:2305.08846, Theorem 5.2.
"""

import math

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from privacy.auditing.scores import (
    AuditError,
    Scores,
    check_failure_rate,
    checked_coins,
    checked_scores,
)

_LARGEST_EPSILON = 50.0
_EPSILON_STEP = 1e-4
_SHARES = np.array([1, 1 / 2, 1 / 3, 1 / 5, 1 / 8, 1 / 12, 1 / 20, 1 / 30, 1 / 50, 1 / 100])


class EpsilonBound(msgspec.Struct, frozen=True, kw_only=True):
    """A lower bound on ε at δ, above the truth with chance ``failure_rate``.

    The counts are m coins thrown, r of them guessed and v guesses right.
    """

    epsilon: float
    delta: float
    failure_rate: float
    canary_count: int
    guess_count: int
    correct_count: int


def epsilon_lower_bound(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    guess_count: int,
    delta: float,
    failure_rate: float = 1e-4,
) -> EpsilonBound:
    """Guess the coins of the highest and lowest scores and bound ε ([Steinke] Theorem 5.2).

    Scores and coins, fair and independent, have shape ``(canaries,)``; a higher score looks more
    like taking part. ``guess_count`` is even, at least 2, and chosen before the scores were seen,
    as ``planned_guess_count`` does; δ is in [0, 1). Raises AuditError if a score is not finite, the
    shapes differ, or there are fewer canaries than guesses.
    """
    values = checked_scores(scores)
    coins = checked_coins(included, values)
    if values.ndim != 1:
        raise AuditError(f"scores must have shape (canaries,), got {values.shape}")
    _check_guesses(values.size, guess_count)
    order = np.argsort(values, kind="stable")
    half = guess_count // 2
    correct = int(coins[order[-half:]].sum() + (~coins[order[:half]]).sum())
    epsilon = refuted_epsilon(
        values.size, guess_count, correct, delta=delta, failure_rate=failure_rate
    )
    return EpsilonBound(
        epsilon=epsilon,
        delta=delta,
        failure_rate=failure_rate,
        canary_count=values.size,
        guess_count=guess_count,
        correct_count=correct,
    )


def refuted_epsilon(
    canary_count: int, guess_count: int, correct_count: int, *, delta: float, failure_rate: float
) -> float:
    """Return the largest ε that so many right guesses refute, rounded down to 1e-4; >= 0."""
    _check_guesses(canary_count, guess_count)
    check_failure_rate(failure_rate)
    if not 0 <= correct_count <= guess_count:
        raise AuditError(f"correct_count must lie in [0, {guess_count}], got {correct_count}")
    if not 0 <= delta < 1:
        raise AuditError(f"delta must be at least 0 and below 1, got {delta:g}")

    def is_refuted(steps: int) -> bool:
        chance = chance_of_guesses(
            canary_count, guess_count, correct_count, epsilon=steps * _EPSILON_STEP, delta=delta
        )
        return chance <= failure_rate

    low, high = 0, round(_LARGEST_EPSILON / _EPSILON_STEP)
    if not is_refuted(low):
        return 0.0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    return low * _EPSILON_STEP


def chance_of_guesses(
    canary_count: int, guess_count: int, correct_count: int, *, epsilon: float, delta: float
) -> float:
    """Return the most that (ε, δ)-privacy allows for the chance of v or more right guesses.

    In [0, 1], by [Steinke] Theorem 5.2.
    """
    accuracy = special.expit(epsilon)
    if correct_count == 0:
        return 1.0
    chance = float(special.bdtrc(correct_count - 1, guess_count, accuracy))
    if delta > 0:
        # P[v - i <= W < v] for i = 1, 2, ... v; beyond v nothing is added and i only grows.
        below = np.cumsum(_binomial(np.arange(correct_count - 1, -1, -1), guess_count, accuracy))
        chance += 2 * canary_count * delta * float(np.max(below / np.arange(1, len(below) + 1)))
    return min(chance, 1.0)


def planned_guess_count(
    canary_count: int, noise_multiplier: float, *, delta: float, failure_rate: float = 1e-4
) -> int:
    """Return how many coins to guess if the noise is as claimed: it needs no scores.

    Choosing r by the scores would be choosing the luckiest of several tests. Raises AuditError if
    there are fewer than two canaries.
    """
    _check_guesses(canary_count, 2)
    candidates = {max(2, 2 * int(canary_count * share / 2)) for share in _SHARES}

    def expected(guess_count: int) -> float:
        accuracy = _expected_accuracy(guess_count / canary_count, noise_multiplier)
        return refuted_epsilon(
            canary_count,
            guess_count,
            math.floor(accuracy * guess_count),
            delta=delta,
            failure_rate=failure_rate,
        )

    return max(sorted(candidates), key=expected)


def _binomial(values: NDArray[np.int64], count: int, chance: float) -> Scores:
    """Return the chances of the values under Bin(count, chance)."""
    ways = special.gammaln(count + 1) - special.gammaln(values + 1)
    ways -= special.gammaln(count - values + 1)
    logarithm = ways + special.xlogy(values, chance) + special.xlog1py(count - values, -chance)
    chances: Scores = np.exp(logarithm)
    return chances


def _expected_accuracy(share: float, noise_multiplier: float) -> float:
    """Return how often guesses about this share of Gaussian scores are right."""
    half = 1 / (2 * noise_multiplier)
    # Scores N(±half, 1): the threshold that a share of them passes in size, by bisection.
    low, high = 0.0, half + 40.0
    for _ in range(60):
        threshold = (low + high) / 2
        passing = special.ndtr(half - threshold) + special.ndtr(-half - threshold)
        low, high = (threshold, high) if passing > share else (low, threshold)
    right, wrong = special.ndtr(half - low), special.ndtr(-half - low)
    return float(right / (right + wrong)) if right > 0 else 1.0


def _check_guesses(canary_count: int, guess_count: int) -> None:
    if guess_count < 2 or guess_count % 2:
        raise AuditError(f"guess_count must be even and at least 2, got {guess_count}")
    if canary_count < guess_count:
        raise AuditError(
            f"{guess_count} guesses need as many canaries, got {canary_count}; "
            "raise the number of canaries or rounds"
        )
