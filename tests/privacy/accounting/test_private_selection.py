import math

import pytest

from privacy.accounting.accountant import epsilon_of
from privacy.accounting.events import GaussianRelease
from privacy.accounting.private_selection import (
    ORDERS,
    draw_run_count,
    epsilon_of_best,
    selection_curve,
)


def test_the_curve_is_the_theorem_term_by_term() -> None:
    # One Gaussian release with z = 2 is (λ, λ / 8)-Rényi private. Geometric with mean 10: η = 1,
    # γ = 0.1. The free order minimises 2 (1 - 1/λ') λ'/8 + 2 ln(10)/λ', least at λ'^2 = 8 ln 10.
    one_run = [order / 8 for order in ORDERS]
    free = min(ORDERS, key=lambda order: order / 4 + 2 * math.log(10) / order)
    choosing = 2 * (1 - 1 / free) * free / 8 + 2 * math.log(10) / free

    curve = selection_curve(one_run, 10.0)

    at_five = ORDERS.index(5.0)
    assert free == pytest.approx(math.sqrt(8 * math.log(10)), abs=0.06)
    assert curve[at_five] == pytest.approx(5 / 8 + choosing + math.log(10) / 4)


def test_choosing_costs_more_than_one_run_and_less_than_all_of_them() -> None:
    one = epsilon_of(
        [GaussianRelease(noise_multiplier=2.0, adjacency="zero-out", sampling=None)], 1e-6
    )
    ten = epsilon_of(
        [GaussianRelease(noise_multiplier=2.0, adjacency="zero-out", sampling=None)] * 20, 1e-6
    )

    best = epsilon_of_best(
        noise_multiplier=2.0, sampling_rate=1.0, rounds=1, delta=1e-6, expected_runs=20.0
    )

    assert one < best < ten


def test_sampling_amplifies_the_search_too() -> None:
    def epsilon(rate: float) -> float:
        return epsilon_of_best(
            noise_multiplier=1.0, sampling_rate=rate, rounds=50, delta=1e-6, expected_runs=10.0
        )

    assert epsilon(0.01) < epsilon(0.1) < epsilon(1.0)


def test_the_number_of_runs_is_geometric() -> None:
    counts = [draw_run_count(4.0) for _ in range(4000)]

    # Mean 4, standard deviation sqrt(0.75) / 0.25 = 3.46; one run with probability 1/4.
    assert min(counts) == 1
    assert sum(counts) / 4000 == pytest.approx(4.0, abs=6.5 * 3.46 / math.sqrt(4000))
    assert counts.count(1) / 4000 == pytest.approx(0.25, abs=6.5 * math.sqrt(0.25 * 0.75 / 4000))


@pytest.mark.parametrize("mean", [1.0, 0.5, math.inf, math.nan])
def test_a_mean_that_is_no_mean_is_refused(mean: float) -> None:
    with pytest.raises(ValueError, match="expected_runs must be > 1"):
        draw_run_count(mean)
