import math

import numpy as np
import pytest
from scipy import stats

from privacy.auditing.noise_estimate import gaussian_epsilon
from privacy.auditing.one_run_bound import (
    chance_of_guesses,
    epsilon_lower_bound,
    planned_guess_count,
    refuted_epsilon,
)
from privacy.auditing.scores import AuditError

FAILURE_RATE = 1e-4


def test_without_delta_the_bound_is_that_of_randomised_response() -> None:
    # All of 10 guesses right has chance q^10, q = e^ε/(1 + e^ε): q = 0.0001^(1/10) = 0.39811 is
    # below 1/2, so nothing is refuted; with 100 guesses q = 0.91201 and ε = ln(q/(1 - q)).
    right = FAILURE_RATE ** (1 / 100)

    assert refuted_epsilon(10, 10, 10, delta=0, failure_rate=FAILURE_RATE) == 0
    bound = refuted_epsilon(100, 100, 100, delta=0, failure_rate=FAILURE_RATE)
    assert bound == pytest.approx(math.log(right / (1 - right)), abs=1e-4)
    assert bound <= math.log(right / (1 - right))


def test_delta_adds_its_term() -> None:
    # r = 2, v = 2, ε = 0: W is 0, 1, 2 with 1/4, 1/2, 1/4. The maximum is over i = 1: 1/2 and
    # i = 2: 3/4 / 2, so 1/2; m = 5 adds 2 * 5 * 0.01 / 2.
    assert chance_of_guesses(5, 2, 2, epsilon=0, delta=0.01) == pytest.approx(0.25 + 0.05)


def test_the_bound_is_never_above_the_claim_in_a_hundred_runs() -> None:
    # By the theorem each of 300 runs fails with a chance of at most 1e-4.
    generator = np.random.default_rng(7)
    m, delta = 2000, 1e-9
    for noise_multiplier in (0.5, 1.0, 2.0):
        claimed = gaussian_epsilon(noise_multiplier, delta)
        guesses = planned_guess_count(m, noise_multiplier, delta=delta)
        coins = generator.random((100, m)) < 0.5
        scores = coins + noise_multiplier * generator.standard_normal((100, m))

        bounds = [
            epsilon_lower_bound(one, coin, guess_count=guesses, delta=delta).epsilon
            for one, coin in zip(scores, coins, strict=True)
        ]

        assert max(bounds) <= claimed
        # And it is worth something: at least a twentieth of the claim, in every run.
        assert min(bounds) >= claimed / 20


def test_a_release_without_noise_is_refuted() -> None:
    coins = np.random.default_rng(2).random(1000) < 0.5

    bound = epsilon_lower_bound(coins.astype(float), coins, guess_count=400, delta=1e-9)

    assert bound.correct_count == 400
    assert bound.epsilon > 3.7 > gaussian_epsilon(2.0, 1e-9)


def test_the_guesses_are_planned_where_the_bound_is_largest() -> None:
    m, delta = 4000, 1e-9

    planned = planned_guess_count(m, 1.0, delta=delta)

    # Guessing everything is right P[N(1/2, 1) > 0] = 69 % of the time; fewer guesses are better.
    everything = refuted_epsilon(
        m, m, int(m * stats.norm.cdf(0.5)), delta=delta, failure_rate=FAILURE_RATE
    )
    threshold = stats.norm.isf(planned / m / 2)
    assert 2 <= planned < m
    # Of scores N(±1/2, 1), those beyond about that threshold are right more often.
    right = stats.norm.sf(threshold - 0.5) / (
        stats.norm.sf(threshold - 0.5) + stats.norm.sf(threshold + 0.5)
    )
    bound = refuted_epsilon(
        m, planned, int(planned * right), delta=delta, failure_rate=FAILURE_RATE
    )
    assert bound > everything


def test_too_few_canaries_and_impossible_counts_are_refused() -> None:
    coins = np.array([True, False, True])

    with pytest.raises(AuditError, match="4 guesses need as many canaries, got 3"):
        epsilon_lower_bound(np.zeros(3), coins, guess_count=4, delta=0)
    with pytest.raises(AuditError, match="guess_count must be even"):
        epsilon_lower_bound(np.zeros(3), coins, guess_count=3, delta=0)
    with pytest.raises(AuditError, match="1 of 3 are NaN"):
        epsilon_lower_bound([0, math.nan, 1], coins, guess_count=2, delta=0)
    with pytest.raises(AuditError, match=r"correct_count must lie in \[0, 2\], got 3"):
        refuted_epsilon(4, 2, 3, delta=0, failure_rate=FAILURE_RATE)
    with pytest.raises(AuditError, match="delta must be at least 0"):
        refuted_epsilon(4, 2, 2, delta=math.nan, failure_rate=FAILURE_RATE)
