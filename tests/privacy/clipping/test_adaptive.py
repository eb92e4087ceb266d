import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.clipping.adaptive import (
    LEAST_CLIPPING_NORM,
    aggregate_noise_multiplier,
    fit_excess,
    fit_sensitivity,
    next_clipping_norm,
)
from privacy.clipping.sensitivity import Adjacency
from privacy.clipping.settings import AdaptiveClipping


def adaptive(
    quantile: float = 0.5, step: float = 0.2, std: float = 0.0, largest: float | None = None
) -> AdaptiveClipping:
    return AdaptiveClipping(
        target_quantile=quantile, step=step, count_noise_std=std, largest=largest
    )


def test_the_norm_falls_by_the_step_times_what_fitted_too_often() -> None:
    # 8 of 10 fitted where 5 should: C = 2 e^(-0.2 * 0.3).
    excess = fit_excess(8, 10, 0.5)

    found = next_clipping_norm(2.0, adaptive(), noised_excess=excess, slot_count=10)

    assert excess == 3.0
    assert found == pytest.approx(2 * math.exp(-0.06))


def test_the_norm_stays_where_the_quantile_is_met_whatever_the_empty_slots() -> None:
    # 18 of 20 fitted, as γ = 0.9 asks; 30 slots stayed empty.
    excess = fit_excess(18, 20, 0.9)

    found = next_clipping_norm(2.0, adaptive(0.9), noised_excess=excess, slot_count=50)

    assert found == pytest.approx(2.0)


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
def test_the_norm_finds_the_quantile_from_far_off(quantile: float) -> None:
    # Norms are log-normal; 100 of 120 slots come; the count has noise of 5 clients (seed 1). C ends
    # within a tenth of the quantile e^(Φ^-1(γ)), from 100-fold too small and large.
    expected = math.exp({0.2: -0.8416, 0.5: 0.0, 0.9: 1.2816}[quantile])
    for start in (1e-2, 1e2):
        generator = np.random.default_rng(1)
        norm, settings = start, adaptive(quantile, std=5.0)
        path = []
        for _ in range(800):
            norms = generator.lognormal(size=100)
            excess = fit_excess(int((norms <= norm).sum()), 100, quantile)
            noised = excess + generator.normal(scale=settings.count_noise_std)
            norm = next_clipping_norm(norm, settings, noised_excess=noised, slot_count=120)
            path.append(norm)

        assert np.exp(np.log(path[400:]).mean()) == pytest.approx(expected, rel=0.1)


def test_zeros_alone_let_the_norm_fall_and_stop() -> None:
    # Every zero update fits: C halves in 7 rounds, and stops before it leaves the range of floats.
    settings, norm = adaptive(), 1.0
    for _ in range(1000):
        norm = next_clipping_norm(norm, settings, noised_excess=5.0, slot_count=10)

    assert norm == pytest.approx(LEAST_CLIPPING_NORM)


def test_the_norm_never_rises_above_its_largest() -> None:
    settings = adaptive(largest=3.0)

    assert next_clipping_norm(2.9, settings, noised_excess=-10.0, slot_count=10) == pytest.approx(3)
    assert next_clipping_norm(2.9, settings, noised_excess=-1e9, slot_count=10) == pytest.approx(3)


@pytest.mark.parametrize(("noise_multiplier", "std"), [(0.5, 1.0), (1.0, 5.0), (7.0, 325.0)])
def test_the_split_for_the_median_is_that_of_the_paper(noise_multiplier: float, std: float) -> None:
    # [Andrew] Theorem 1: z_Δ = (z^-2 - (2σ_b)^-2)^-1/2.
    expected = (noise_multiplier**-2 - (2 * std) ** -2) ** -0.5

    found = aggregate_noise_multiplier(noise_multiplier, adaptive(std=std))

    assert found == pytest.approx(expected)


@given(
    noise_multiplier=st.floats(0.1, 20),
    quantile=st.floats(0.01, 0.99),
    spare=st.floats(1.01, 100),
    adjacency=st.sampled_from(["zero-out", "replace-one", "add-remove"]),
)
def test_aggregate_and_count_together_have_the_multiplier_that_was_asked_for(
    noise_multiplier: float, quantile: float, spare: float, adjacency: Adjacency
) -> None:
    # Two Gaussian mechanisms side by side: the inverse squares of their multipliers add up.
    reach = fit_sensitivity(quantile, adjacency)
    settings = adaptive(quantile, std=spare * noise_multiplier * reach)

    split = aggregate_noise_multiplier(
        noise_multiplier,
        settings,
        adjacency=adjacency,
    )

    together = split**-2 + (settings.count_noise_std / reach) ** -2
    assert together**-0.5 == pytest.approx(noise_multiplier)


@given(
    quantile=st.floats(0.01, 0.99),
    others=st.lists(st.booleans(), max_size=20),
    fits=st.booleans(),
    replaced=st.booleans(),
)
def test_one_client_moves_the_sum_by_no_more_than_its_sensitivity(
    quantile: float, others: list[bool], fits: bool, replaced: bool
) -> None:
    absent = fit_excess(sum(others), len(others), quantile)
    present, other = (
        fit_excess(sum([*others, answer]), len(others) + 1, quantile) for answer in (fits, replaced)
    )

    assert abs(present - absent) <= fit_sensitivity(quantile) + 1e-12
    assert abs(present - other) <= fit_sensitivity(quantile, "replace-one") + 1e-12


def test_a_count_with_too_little_noise_is_refused_with_the_least() -> None:
    # z = 2 and half a client: σ_b must pass 1.
    with pytest.raises(ValueError, match=r"count_noise_std must be > 1 .*got 1; raise it"):
        aggregate_noise_multiplier(2.0, adaptive(std=1.0))


@pytest.mark.parametrize("noise_multiplier", [0.0, -1.0, math.nan, math.inf])
def test_no_noise_cannot_be_split(noise_multiplier: float) -> None:
    with pytest.raises(ValueError, match="noise_multiplier must be > 0 and finite"):
        aggregate_noise_multiplier(noise_multiplier, adaptive(std=1.0))


def test_more_cannot_fit_than_came() -> None:
    with pytest.raises(ValueError, match=r"fitting_count must lie in \[0, 3\], got 4"):
        fit_excess(4, 3, 0.5)


@pytest.mark.parametrize(
    ("norm", "excess", "slots", "told"),
    [
        (0.0, 0.0, 1, "clipping_norm must be > 0 and finite, got 0"),
        (math.nan, 0.0, 1, "clipping_norm must be > 0 and finite, got nan"),
        (1.0, math.inf, 1, "noised_excess must be finite, got inf"),
        (1.0, 0.0, 0, "slot_count must be >= 1, got 0"),
    ],
)
def test_a_step_from_nowhere_is_refused(norm: float, excess: float, slots: int, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        next_clipping_norm(norm, adaptive(), noised_excess=excess, slot_count=slots)
