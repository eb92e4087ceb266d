"""Draws against exact probabilities, the paper's own sampler, and their own exact decisions."""

import decimal
import math
import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from privacy.masking import discrete_gaussian
from privacy.masking.discrete_gaussian import KEY_BYTES, add_discrete_gaussian
from privacy.masking.exact_coin import exponential_bounds, falls_below

KEY = bytes(range(32))


def drawn(count: int, std: float, key: bytes = KEY) -> np.ndarray:
    """Return noise on zeros."""
    values = np.zeros(count, dtype=np.int64)
    add_discrete_gaussian(values, std, key)
    return values


def chi_square(noise: np.ndarray, std: float) -> tuple[float, int]:
    """Return the statistic against e^(-n^2 / 2 std^2) and its degrees of freedom."""
    reach = int(40 * std) + 40
    weights = {n: math.exp(-n * n / (2 * std * std)) for n in range(-reach, reach + 1)}
    total = math.fsum(weights.values())
    expected = {n: len(noise) * weight / total for n, weight in weights.items()}
    # Cells with at least ten expected draws; all others are one cell.
    cells = {n: value for n, value in expected.items() if value >= 10}
    observed = Counter(noise.tolist())
    beyond = len(noise) - sum(cells.values()), len(noise) - sum(observed[n] for n in cells)
    statistic = sum((observed[n] - value) ** 2 / value for n, value in cells.items())
    return statistic + (beyond[1] - beyond[0]) ** 2 / max(beyond[0], 1), len(cells)


# Strips of one integer below 28, of two and of four above: the seed is fixed, and a right sampler
# exceeds six deviations of chi-square for less than one key in 100,000.
@pytest.mark.parametrize("std", [0.25, 0.7, 1.0, 5.0, 13.9, 28.0, 31.4, 60.0])
def test_the_draws_have_the_probabilities_of_the_discrete_gaussian(std: float) -> None:
    statistic, freedom = chi_square(drawn(400_000, std), std)

    assert statistic < freedom + 6 * math.sqrt(2 * freedom) + 6


@pytest.mark.parametrize("std", [5.0, 31.4])
def test_a_tail_that_begins_early_has_the_same_probabilities(
    std: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One draw in 22 comes from beyond 2 standard deviations, by exact decisions alone.
    monkeypatch.setattr(discrete_gaussian, "_TAIL_STDS", 2)
    discrete_gaussian._strips.cache_clear()

    noise = drawn(20_000, std)

    discrete_gaussian._strips.cache_clear()
    statistic, freedom = chi_square(noise, std)
    assert statistic < freedom + 6 * math.sqrt(2 * freedom) + 6
    assert np.abs(noise).max() > 3 * std


@pytest.mark.parametrize("std", [3.0, 1e4 + 1 / 3, 2.0**31])
def test_exact_decisions_confirm_those_by_floating_point(
    std: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_floats = drawn(20_000, std)
    monkeypatch.setattr(discrete_gaussian, "_UNDECIDED", 0.005)

    # Now about one candidate in 100 is decided by rationals: the same draws.
    assert np.array_equal(drawn(20_000, std), by_floats)


@pytest.mark.parametrize("std", [1e3, 2.0**20 + 0.5, 2.0**31, 2.0**40])
def test_the_noise_has_the_moments_of_a_normal_at_large_deviations(std: float) -> None:
    count = 1_000_000
    scaled = drawn(count, std) / std

    # Each bound is 5.5 standard errors of its estimate; the key is fixed.
    error = 5.5 / math.sqrt(count)
    assert abs(scaled.mean()) < error
    assert abs((scaled**2).mean() - 1) < error * math.sqrt(2)
    assert abs((scaled**3).mean()) < error * math.sqrt(15)
    assert abs((scaled**4).mean() - 3) < error * math.sqrt(96)
    # The lowest bits are those of a wide distribution: as often odd as even.
    assert abs((drawn(count, std, bytes(32)) & 1).mean() - 0.5) < error / 2


def exponential_coin(rng: random.Random, exponent: Fraction) -> bool:
    """Return True with chance e^-exponent: [Canonne] Algorithm 1."""
    while exponent > 1:
        if not exponential_coin(rng, Fraction(1)):
            return False
        exponent -= 1
    count = 1
    while rng.randrange(exponent.denominator * count) < exponent.numerator:
        count += 1
    return count % 2 == 1


def papers_draw(rng: random.Random, variance: Fraction) -> int:
    """Return a draw of the discrete Gaussian: [Canonne] Algorithms 2 and 3."""
    scale = math.isqrt(variance.__floor__()) + 1
    while True:
        offset = rng.randrange(scale)
        if not exponential_coin(rng, Fraction(offset, scale)):
            continue
        multiple = 0
        while exponential_coin(rng, Fraction(1)):
            multiple += 1
        magnitude, negative = offset + scale * multiple, rng.randrange(2)
        if negative and magnitude == 0:
            continue
        exponent = (magnitude - variance / scale) ** 2 / (2 * variance)
        if exponential_coin(rng, exponent):
            return -magnitude if negative else magnitude


def test_the_draws_are_distributed_as_those_of_the_paper() -> None:
    rng, count = random.Random(1), 10_000
    papers = Counter(papers_draw(rng, Fraction(9)) for _ in range(count))
    ours = Counter(drawn(count, 3.0).tolist())

    # Two samples of equal size, 13 cells: chi-square has 13 degrees of freedom.
    statistic = sum((ours[n] - papers[n]) ** 2 / (ours[n] + papers[n]) for n in range(-6, 7))
    assert statistic < 13 + 6 * math.sqrt(26)


@pytest.mark.parametrize(
    ("factor", "exponent"),
    [
        (Fraction(1, 3), Fraction(1, 7)),
        (Fraction(3000, 1), Fraction(30)),
        (Fraction(1), Fraction()),
    ],
)
def test_a_coin_is_decided_where_its_uniform_meets_the_chance(
    factor: Fraction, exponent: Fraction
) -> None:
    with decimal.localcontext(prec=80):
        power = (-decimal.Decimal(exponent.numerator) / exponent.denominator).exp()
        # 128 bits of the chance, in two words; a chance of 1 is just below its end.
        chance = int(power * factor.numerator / factor.denominator * 2**128)
    first, second = divmod(min(chance, 2**128 - 1), 2**64)

    assert falls_below(first - 1, factor, exponent, lambda: 2**64 - 1)
    assert falls_below(first, factor, exponent, lambda: second - 1)
    if chance < 2**128:
        assert not falls_below(first, factor, exponent, lambda: second + 1)
        assert not falls_below(first + 1, factor, exponent, lambda: 0)


@pytest.mark.parametrize("exponent", [Fraction(), Fraction(1, 3), Fraction(77, 2)])
def test_the_bounds_of_an_exponential_hold_it_closely(exponent: Fraction) -> None:
    least, largest = exponential_bounds(exponent, 200)

    # A second way: e^-x = 1 / sum x^n / n!, where the terms left out are below the last one.
    term = total = Fraction(1)
    for n in range(1, 300):
        term *= exponent / n
        total += term
    assert Fraction(least, 2**200) <= 1 / total
    assert 1 / (total + term) <= Fraction(largest, 2**200)
    assert largest - least <= 2


def test_the_same_key_draws_the_same_noise_and_another_key_other_noise() -> None:
    first, again = drawn(1000, 50.0), np.full(1000, 7, dtype=np.int64)
    add_discrete_gaussian(again, 50.0, KEY)

    assert np.array_equal(again, first + 7)
    assert not np.array_equal(drawn(1000, 50.0, bytes(KEY_BYTES)), first)


@pytest.mark.parametrize(
    ("std", "key", "rule"),
    [
        (0.0, KEY, r"must be in 0\.25\.\.1\.09951e\+12 steps, got 0"),
        (math.nan, KEY, "got nan"),
        (math.inf, KEY, "got inf"),
        (5.0, bytes(16), "must have 32 bytes, got 16"),
    ],
)
def test_noise_without_a_deviation_or_a_key_is_refused(std: float, key: bytes, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        drawn(3, std, key)
