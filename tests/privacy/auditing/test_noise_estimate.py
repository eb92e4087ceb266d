import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from privacy.auditing.noise_estimate import (
    LEAST_CANARIES,
    estimate_noise_multiplier,
    faults,
    gaussian_epsilon,
    worst_canary,
)
from privacy.auditing.scores import AuditError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def gaussian_scores(
    noise_multiplier: float, shape: tuple[int, ...], *, seed: int = 1
) -> tuple[Floats, Bools]:
    """Return scores that canaries of displacement 3 have under noise of 3z, around 7."""
    generator = np.random.default_rng(seed)
    included = generator.random(shape) < 0.5
    return 7 + 3 * (included + noise_multiplier * generator.standard_normal(shape)), included


@pytest.mark.parametrize("truth", [0.5, 1.0, 2.0])
def test_the_estimate_is_within_a_tenth_of_the_truth(truth: float) -> None:
    scores, included = gaussian_scores(truth, (1600, 16))

    estimate = estimate_noise_multiplier(scores, included)

    # Standard error z sqrt(4/25600) = 2.5 % at z = 2: a tenth is four of them.
    assert estimate.noise_multiplier == pytest.approx(truth, rel=0.1)
    assert estimate.lower < truth < estimate.upper
    assert estimate.displacement == pytest.approx(3, rel=0.1)
    assert faults(truth, estimate, worst_canary(scores, included)) == []


def test_the_bounds_hold_as_often_as_they_say() -> None:
    # 400 audits with each bound wrong once in 20: 20 wrong on average, standard deviation 4.4.
    audits = [
        estimate_noise_multiplier(*gaussian_scores(1.0, (200,), seed=seed), failure_rate=0.05)
        for seed in range(400)
    ]

    assert 5 <= sum(audit.upper < 1 for audit in audits) <= 38
    assert 5 <= sum(audit.lower > 1 for audit in audits) <= 38


def test_a_canary_that_counts_twice_is_found_where_the_mean_hides_it() -> None:
    scores, included = gaussian_scores(1.0, (400, 32))
    scores[:, 5] += 3 * included[:, 5]

    pooled, worst = estimate_noise_multiplier(scores, included), worst_canary(scores, included)

    assert worst.canary == 5
    # It moves the release by 6 under noise of 3.
    assert worst.noise_multiplier == pytest.approx(0.5, rel=0.2)
    assert faults(1.0, pooled) == []
    assert "canary 5" in faults(1.0, pooled, worst)[0]


def test_without_noise_the_multiplier_is_zero() -> None:
    included = np.tile([True, False], 50)

    estimate = estimate_noise_multiplier(included.astype(float), included)

    assert (estimate.noise_multiplier, estimate.lower, estimate.upper) == (0.0, 0.0, 0.0)
    assert "the noise multiplier is 0" in faults(0.5, estimate)[0]


def test_canaries_that_cannot_be_told_apart_contradict_nothing() -> None:
    scores, included = gaussian_scores(1e6, (200,))

    estimate = estimate_noise_multiplier(scores, included)

    assert estimate.upper == math.inf
    assert faults(3.0, estimate) == []


def test_what_cannot_be_judged_is_refused() -> None:
    scores, included = gaussian_scores(1.0, (100,))
    broken = scores.copy()
    broken[3] = np.nan

    with pytest.raises(AuditError, match="1 of 100 are NaN or infinite"):
        estimate_noise_multiplier(broken, included)
    with pytest.raises(AuditError, match=f"at least {LEAST_CANARIES} canaries must be included"):
        estimate_noise_multiplier(scores[:40], included[:40])
    with pytest.raises(AuditError, match=r"included must be booleans of shape \(100,\)"):
        estimate_noise_multiplier(scores, included[:99])
    with pytest.raises(AuditError, match=r"shape \(rounds, canaries\), got \(100,\)"):
        worst_canary(scores, included)
    with pytest.raises(AuditError, match="failure_rate must be above 0"):
        estimate_noise_multiplier(scores, included, failure_rate=0.0)
    with pytest.raises(ValueError, match="claimed noise multiplier must be > 0"):
        faults(0.0, estimate_noise_multiplier(scores, included))


@pytest.mark.parametrize("noise_multiplier", [0.3, 1.0, 4.0, 50.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_the_exact_epsilon_gives_back_its_delta(noise_multiplier: float, delta: float) -> None:
    epsilon = gaussian_epsilon(noise_multiplier, delta)

    # Balle and Wang, Theorem 8, written out with the distribution functions.
    mean = 1 / noise_multiplier
    first = stats.norm.cdf(mean / 2 - epsilon / mean)
    second = math.exp(epsilon) * stats.norm.cdf(-mean / 2 - epsilon / mean)
    # Their difference loses digits where delta is small.
    assert first - second == pytest.approx(delta, rel=1e-3, abs=1e-14) or epsilon == 0


def test_no_noise_costs_everything_and_infinite_noise_nothing() -> None:
    assert gaussian_epsilon(0.0, 1e-6) == math.inf
    assert gaussian_epsilon(math.inf, 1e-6) == 0
    with pytest.raises(ValueError, match="noise_multiplier must be >= 0"):
        gaussian_epsilon(math.nan, 1e-6)
