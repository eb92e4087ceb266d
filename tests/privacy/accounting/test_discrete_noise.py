"""The bounds on sums of discrete Gaussians, held against sums computed by convolution."""

import math

import numpy as np
import pytest

from privacy.accounting.discrete_noise import (
    LEAST_SHARE_STD,
    check_share_std,
    share_variance,
    shares_log_ratio,
    tau,
)


def probabilities(variance: float, reach: int = 200) -> np.ndarray:
    """Return the discrete Gaussian on -reach..reach."""
    places = np.arange(-reach, reach + 1)
    weights: np.ndarray = np.exp(-(places**2) / (2 * variance))
    weights /= weights.sum()
    return weights


@pytest.mark.parametrize("std", [0.5, 0.6, 0.75, 1.0])
@pytest.mark.parametrize("shares", [2, 3, 8])
def test_tau_bounds_the_log_ratio_of_a_sum_of_shares(std: float, shares: int) -> None:
    one = probabilities(std**2)
    summed = one
    for _ in range(shares - 1):
        summed = np.convolve(summed, one, mode="same")

    # As far as float64 resolves the convolution: four deviations of the sum.
    middle = slice(200 - int(4 * std * shares**0.5), 201 + int(4 * std * shares**0.5))
    ratios = np.log(summed[middle] / probabilities(shares * std**2)[middle])
    assert np.abs(ratios).max() <= tau(std, shares) + 1e-9


def test_tau_is_the_sum_of_its_terms() -> None:
    # sigma = 1/2: terms e^(-pi^2/2 * k/(k+1)) for k = 1, 2.
    expected = 10 * (math.exp(-(math.pi**2) / 4) + math.exp(-(math.pi**2) / 3))
    assert tau(0.5, 3) == pytest.approx(expected)
    assert tau(0.5, 1) == 0
    exact = 10 * math.fsum(math.exp(-(math.pi**2) / 2 * k / (k + 1)) for k in range(1, 1000))
    # Beyond 64 shares, one term stands for all that follow.
    assert exact < tau(0.5, 1000) < 1.1 * exact


def test_shares_of_five_steps_cost_nothing_that_a_figure_shows() -> None:
    assert 0 < shares_log_ratio(LEAST_SHARE_STD, 1_000_000, 2**30) < 1e-24


def test_honest_shares_make_the_noise_with_its_smoothing() -> None:
    # Ten shares: z S = 99 steps and a smoothing of 2: 99^2 + 4 = 9805.
    assert share_variance(99.0, 10) == 980.5


@pytest.mark.parametrize("share_std", [4.999, 0.0, math.nan, math.inf])
def test_a_share_too_narrow_for_its_grid_is_refused(share_std: float) -> None:
    with pytest.raises(ValueError, match="at least 5 steps of the grid"):
        check_share_std(share_std)
    with pytest.raises(ValueError, match="at least 5 steps of the grid"):
        shares_log_ratio(share_std, 10, 10)


def test_counts_and_noise_must_be_there() -> None:
    with pytest.raises(ValueError, match="shares must be >= 1, got 0"):
        shares_log_ratio(5.0, 0, 1)
    with pytest.raises(ValueError, match="element_count must be >= 1, got 0"):
        shares_log_ratio(5.0, 1, 0)
    with pytest.raises(ValueError, match="honest must be >= 1, got 0"):
        share_variance(1.0, 0)
    with pytest.raises(ValueError, match="noise_std must be > 0 and finite, got nan"):
        share_variance(math.nan, 1)
