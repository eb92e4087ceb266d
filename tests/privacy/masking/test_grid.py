"""What rounding costs, that sums fit, and that a grid's noise is what it says."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.accounting.discrete_noise import SMOOTHING
from privacy.masking.grid import (
    Grid,
    Messages,
    add_share,
    choose_grid,
    finest_grid,
    from_grid,
    to_grid,
)
from privacy.masking.packing import PACKED_BITS
from privacy.masking.rotation import rotate

MILLION = Messages(
    element_count=1_000_000,
    norm=1.0,
    sensitivity=1.0,
    contributors=100,
    noise_multiplier=1.0,
    honest=80,
)
SMALL = dataclasses.replace(MILLION, element_count=50, contributors=5, honest=4)


def key(number: int) -> bytes:
    """Return a key that a test can name."""
    return number.to_bytes(32, "big")


def total(rounded: list[np.ndarray], grid: Grid) -> np.ndarray:
    """Return the sum of rounded messages modulo 2^bits."""
    whole: np.ndarray = np.sum(rounded, axis=0) % 2**grid.bits
    return whole.astype(np.uint32)


def length(rounded: np.ndarray, grid: Grid) -> float:
    """Return the norm of a rounded message in real units."""
    return grid.step * float(np.linalg.norm(rounded.astype(np.float64)))


def test_a_million_elements_of_a_hundred_clients_take_twenty_bits() -> None:
    grid = choose_grid(MILLION)

    assert grid.bits == 20
    # The excess of |X|^2 over 1: g^2 d / 4 and sqrt(2 ln 2^30) g (1 + g sqrt(d) / 2).
    spread = grid.step * 1000
    excess = spread**2 / 4 + math.sqrt(60 * math.log(2)) * grid.step * (1 + spread / 2)
    assert grid.rounded_norm == pytest.approx(math.sqrt(1 + excess), rel=1e-8)
    assert grid.sensitivity == grid.rounded_norm < 1.0005


@pytest.mark.parametrize(
    ("contributors", "element_count", "bits"),
    [(1000, 10_000_000, 24), (1000, 1_000_000, 20), (10, 10_000, 16), (100_000, 10_000_000, 32)],
)
def test_larger_sums_take_wider_elements(contributors: int, element_count: int, bits: int) -> None:
    messages = dataclasses.replace(
        MILLION, element_count=element_count, contributors=contributors, honest=contributors
    )

    assert choose_grid(messages).bits == bits


def test_a_replaced_message_moves_the_sum_by_two_rounded_ones() -> None:
    grid = choose_grid(dataclasses.replace(MILLION, sensitivity=2.0))

    assert grid.sensitivity == pytest.approx(2 * grid.rounded_norm)


def test_the_honest_shares_add_up_to_the_noise_and_its_smoothing() -> None:
    grid = choose_grid(MILLION)

    variance = (grid.sensitivity / grid.step) ** 2 + SMOOTHING**2
    assert 80 * grid.share_std**2 == pytest.approx(variance, rel=1e-12)


@pytest.mark.parametrize("bits", PACKED_BITS)
def test_the_noise_of_a_sum_is_that_of_the_honest_shares_and_of_the_others(bits: int) -> None:
    messages = dataclasses.replace(SMALL, element_count=20_000)
    grid = finest_grid(messages, bits)
    shares = np.zeros(20_000, dtype=np.int64)
    for device in range(5):
        add_share(shares, grid, key(device))

    noise = from_grid(total([shares], grid), grid)

    # Five shares of which four make z S = 1; 5.5 standard errors of a deviation, and fixed keys.
    expected = math.sqrt(5 / 4) * grid.sensitivity
    assert noise.std() == pytest.approx(expected, rel=5.5 / math.sqrt(40_000))


@settings(max_examples=40, deadline=None)
@given(
    element_count=st.sampled_from([1, 2, 50, 300]),
    bits=st.sampled_from(PACKED_BITS),
    contributors=st.integers(1, 20),
    shape=st.sampled_from(["one element", "all equal", "normal"]),
    seed=st.integers(0, 1000),
)
def test_sums_of_the_largest_messages_come_back_to_the_grid(
    *, element_count: int, bits: int, contributors: int, shape: str, seed: int
) -> None:
    messages = Messages(
        element_count=element_count,
        norm=2.5,
        sensitivity=2.5,
        contributors=contributors,
        noise_multiplier=0,
        honest=contributors,
    )
    grid = finest_grid(messages, bits)
    generator = np.random.default_rng(seed)
    direction = {
        "one element": np.eye(1, element_count, seed % element_count)[0],
        "all equal": np.ones(element_count),
        "normal": generator.normal(size=element_count),
    }[shape]
    message = direction * (2.5 / np.linalg.norm(direction))

    rounded = [to_grid(message, grid, generator.bytes(32)) for _ in range(contributors)]

    assert max(length(one, grid) for one in rounded) <= grid.rounded_norm * (1 + 1e-12)
    assert np.abs(sum(rounded)).max() < 2 ** (bits - 1)
    error = from_grid(total(rounded, grid), grid) - contributors * message
    assert np.linalg.norm(error) <= contributors * grid.step * math.sqrt(element_count) + 1e-9


def test_rounding_keeps_the_mean() -> None:
    grid = dataclasses.replace(finest_grid(SMALL, 16), step=0.05, rounded_norm=2.0)
    message = np.linspace(-0.1, 0.1, 50)
    turned = message.copy()
    rotate(turned)

    mean = np.mean([to_grid(message, grid, key(number)) for number in range(4000)], axis=0)

    # An element's deviation is at most half a step, and there are fifty of them.
    assert np.abs(mean * 0.05 - turned).max() < 5.5 * 0.025 / math.sqrt(4000)


def test_a_message_is_rounded_again_until_its_norm_fits() -> None:
    loose = dataclasses.replace(finest_grid(SMALL, 16), step=0.3, rounded_norm=9.0)
    message = np.full(50, 1 / math.sqrt(50))
    lengths = sorted(length(to_grid(message, loose, key(n)), loose) for n in range(60))
    # Every fifth rounding is longer than this.
    tight = dataclasses.replace(loose, rounded_norm=lengths[48])

    again = [length(to_grid(message, tight, key(n)), tight) for n in range(60)]

    assert max(lengths) > tight.rounded_norm >= max(again)


@pytest.mark.parametrize("size", [1.5, 1e30, math.nan, math.inf])
def test_a_message_beyond_its_norm_is_refused(size: float) -> None:
    grid = finest_grid(SMALL, 24)

    with pytest.raises(ValueError, match="clip it first"):
        to_grid(np.array([size] + [0.0] * 49), grid, key(1))


def test_another_shape_is_refused_everywhere() -> None:
    grid = choose_grid(SMALL)

    with pytest.raises(ValueError, match=r"must have shape \(50,\), got \(49,\)"):
        to_grid(np.zeros(49), grid, key(1))
    with pytest.raises(ValueError, match=r"must have shape \(50,\), got \(51,\)"):
        add_share(np.zeros(51, dtype=np.int64), grid, key(1))
    with pytest.raises(ValueError, match=r"must have shape \(50,\), got \(5, 10\)"):
        from_grid(np.zeros((5, 10), dtype=np.uint32), grid)


def test_rounding_and_noise_are_not_the_same_for_two_keys() -> None:
    grid = choose_grid(SMALL)
    message = np.full(50, 0.1)

    assert np.array_equal(to_grid(message, grid, key(1)), to_grid(message, grid, key(1)))
    assert np.array_equal(message, np.full(50, 0.1))
    assert not np.array_equal(to_grid(message, grid, key(1)), to_grid(message, grid, key(2)))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"noise_multiplier": 0.0}, "a sum without noise hides nobody"),
        ({"noise_multiplier": 1e-9}, "at least 5 steps of the grid"),
        ({"noise_multiplier": 1e9}, "does not fit in 32 bits"),
        ({"contributors": 2**31}, "does not fit in 32 bits"),
        ({"honest": 6}, r"honest must be in 1\.\.contributors, got 6 of 5"),
        ({"honest": 0}, "got 0 of 5"),
        ({"sensitivity": 0.5}, r"must be the norm 1\.0 or twice it, got 0\.5"),
        ({"sensitivity": 1.5}, r"must be the norm 1\.0 or twice it, got 1\.5"),
        ({"norm": math.nan}, "got nan"),
        ({"element_count": 0}, "element_count must be >= 1, got 0"),
        ({"noise_multiplier": -1.0}, "must be >= 0 and finite, got -1"),
    ],
)
def test_messages_that_no_grid_can_hold_are_refused(change: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        choose_grid(dataclasses.replace(SMALL, **change))
