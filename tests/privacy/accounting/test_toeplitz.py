"""The cost of correlated noise through a few buffers, and how little of it a model holds."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.accounting.buffer_design import (
    Buffers,
    best_buffers,
    design_buffers,
    last_error,
)
from privacy.accounting.checked_values import check_buffers
from privacy.accounting.toeplitz import (
    Column,
    buffered_column,
    buffered_prefix_variances,
    buffered_rho,
    buffered_sensitivity_squared,
    toeplitz_sensitivity_squared,
)
from privacy.accounting.tree import tree_sensitivity_squared

PUBLISHED = Buffers(
    (0.9999999999921251, 0.9944453083640997, 0.8985923474607591, 0.4912001418098778),
    (0.0070314825502323835, 0.10613806907600574, 0.1898159060327625, 0.1966594748073734),
)
"""Four buffers of a deployed keyboard, from the public tests of confidential-federated-compute."""
GBOARD = (2000, 313, 6)


def dense(column: Column) -> np.ndarray:
    return np.array(
        [
            [column[row - at] if row >= at else 0.0 for at in range(len(column))]
            for row in range(len(column))
        ]
    )


def patterns(rounds: int, separation: int, most: int, first: int = 0) -> Iterator[list[int]]:
    yield []
    if most:
        for at in range(first, rounds):
            for more in patterns(rounds, separation, most - 1, at + separation):
                yield [at, *more]


def by_trying_every_pattern(column: Column, separation: int, most: int) -> float:
    matrix = dense(column)
    return max(
        float(np.sum(matrix[:, chosen].sum(axis=1) ** 2))
        for chosen in patterns(len(column), separation, most)
    )


@settings(max_examples=60)
@given(
    buffers=st.lists(
        st.tuples(st.floats(0.01, 0.999), st.floats(0.001, 0.2)), min_size=1, max_size=5
    ),
    rounds=st.integers(1, 9),
    separation=st.integers(1, 10),
    most=st.integers(1, 9),
)
def test_no_pattern_of_participations_moves_buffered_noise_further(
    buffers: list[tuple[float, float]], rounds: int, separation: int, most: int
) -> None:
    decays, scales = zip(*buffers, strict=True)
    column = buffered_column(decays, scales, rounds)

    found = buffered_sensitivity_squared(decays, scales, rounds, separation, most)

    assert found == pytest.approx(by_trying_every_pattern(column, separation, most))


@settings(max_examples=60)
@given(
    bands=st.lists(st.floats(0.0, 1.0), min_size=0, max_size=4),
    rounds=st.integers(1, 9),
    separation=st.integers(1, 10),
    most=st.integers(1, 9),
)
def test_no_pattern_of_participations_moves_banded_noise_further(
    bands: list[float], rounds: int, separation: int, most: int
) -> None:
    column = np.zeros(max(rounds, 5))
    column[: len(bands) + 1] = [1.0, *sorted(bands, reverse=True)]
    column = column[:rounds]

    found = toeplitz_sensitivity_squared(column, min_separation=separation, max_participation=most)

    assert found == pytest.approx(by_trying_every_pattern(column, separation, most))


def test_two_rounds_of_one_buffer_by_hand() -> None:
    # C's columns are (1, 1/2, 1/4) and (0, 1, 1/2): together 1 + 9/4 + 9/16.
    assert buffered_sensitivity_squared((0.5,), (0.5,), 3, 1, 2) == pytest.approx(61 / 16)
    # At least two rounds apart they are (1, 1/2, 1/4) and (0, 0, 1): 1 + 1/4 + 25/16.
    assert buffered_sensitivity_squared((0.5,), (0.5,), 3, 2, 2) == pytest.approx(45 / 16)
    # Noise of z = 2: half of it over four.
    rho = buffered_rho(2.0, (0.5,), (0.5,), 3, min_separation=2, max_participation=2)
    assert rho == pytest.approx(45 / 16 / 8)


def test_the_published_buffers_cost_what_their_code_prints() -> None:
    # 100 rounds, separation 50, two participations, multiplier 1: rho 3.17226586.
    rho = buffered_rho(1.0, *PUBLISHED, 100, min_separation=50, max_participation=2)

    assert rho == pytest.approx(3.17226586, abs=5e-9)


def test_the_search_finds_the_published_optimum() -> None:
    # Two buffers for 100,000 rounds of which one person sees one, as jax_privacy prints them.
    published = Buffers((0.9999528892, 0.9857068667), (0.0122853238, 0.1878393665))

    found = best_buffers(2, 100_000, 1, 1)

    np.testing.assert_allclose(found.decays, published.decays, rtol=1e-5)
    np.testing.assert_allclose(found.scales, published.scales, rtol=1e-3)


@pytest.mark.parametrize(("rounds", "allowed"), [(10, 1.04), (100, 1.03), (1000, 1.04)])
def test_one_participation_costs_what_is_known_of_the_best_matrix(
    rounds: int, allowed: float
) -> None:
    # 1 + ln(n) / pi bounds the best Toeplitz matrix (arXiv:2404.16706, Eq. 2.8).
    error = last_error(design_buffers(rounds, 1, 1), rounds, 1, 1)

    assert error <= allowed * (1 + math.log(rounds) / math.pi)


def test_at_gboards_setting_the_last_model_holds_less_than_two_fifths_of_a_trees_noise() -> None:
    rounds, separation, most = GBOARD
    squared = tree_sensitivity_squared([rounds], min_separation=separation, max_participation=most)
    ones = [number.bit_count() for number in range(1, rounds + 1)]
    found = design_buffers(*GBOARD)

    assert len(found.decays) == 2
    assert last_error(found, *GBOARD) < 0.4 * math.sqrt(squared * max(ones))
    # Four buffers found here are no worse at it than the four published ones.
    assert last_error(best_buffers(4, *GBOARD), *GBOARD) <= last_error(PUBLISHED, *GBOARD)


@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_the_noise_in_a_prefix_is_that_of_the_inverse_matrix(rounds: int) -> None:
    buffers = Buffers((0.9, 0.3), (0.2, 0.3))
    inverse = np.linalg.inv(dense(buffered_column(*buffers, rounds)))
    noise = np.tril(np.ones((rounds, rounds))) @ inverse

    np.testing.assert_allclose(
        buffered_prefix_variances(*buffers, rounds), np.sum(noise**2, axis=1)
    )


def test_a_person_in_every_round_leaves_nothing_for_buffers_to_win() -> None:
    # Independent noise is best then: √n of sensitivity times √n of error.
    assert last_error(design_buffers(64, 1, 64), 64, 1, 64) == pytest.approx(64, rel=1e-3)


def test_sensitivity_grows_with_the_rounds_that_were_released() -> None:
    found = [buffered_sensitivity_squared(*PUBLISHED, n, 10, 3) for n in (1, 2, 10, 11, 21, 500)]

    assert found == sorted(found)
    assert found[0] == 1


def test_limits_that_nobody_reaches_are_no_limits() -> None:
    assert buffered_sensitivity_squared((0.5,), (0.5,), 20, 1, 20) == pytest.approx(
        buffered_sensitivity_squared((0.5,), (0.5,), 20, 1, 1 << 60)
    )
    assert buffered_sensitivity_squared((0.5,), (0.5,), 20, 20, 9) == pytest.approx(
        buffered_sensitivity_squared((0.5,), (0.5,), 20, 1 << 60, 9)
    )


@pytest.mark.parametrize(
    ("decays", "scales", "words"),
    [
        ((), (), "1 to 5 numbers, got 0"),
        ((0.5,) * 6, (0.1,) * 6, "1 to 5 numbers, got 6"),
        ((0.5, 0.4), (0.5,), "as many as buffer_decays, 2, got 1"),
        ((1.0,), (0.5,), r"buffer_decays must lie in \(0, 1\), got 1.0"),
        ((0.0,), (0.5,), r"buffer_decays must lie in \(0, 1\)"),
        ((math.nan,), (0.5,), r"buffer_decays must lie in \(0, 1\)"),
        ((0.5,), (-0.1,), "buffer_scales must be > 0"),
        ((0.5,), (math.inf,), "buffer_scales must be > 0 and finite"),
        ((0.5, 0.4), (0.6, 0.6), "sum to at most 1, got 1.2"),
    ],
)
def test_buffers_whose_account_would_be_void_are_refused(
    decays: tuple[float, ...], scales: tuple[float, ...], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        check_buffers(decays, scales)


@pytest.mark.parametrize("column", [[1.0, 0.5, 0.6], [1.0, -0.5], [0.5, 1.0]])
def test_a_column_with_no_known_worst_pattern_is_refused(column: list[float]) -> None:
    with pytest.raises(ValueError, match="non-negative and never rise"):
        toeplitz_sensitivity_squared(np.array(column), min_separation=1, max_participation=1)


def test_a_search_that_would_not_end_is_refused() -> None:
    with pytest.raises(ValueError, match="rounds must be at most 131,072"):
        design_buffers(131_073, 1, 1)
