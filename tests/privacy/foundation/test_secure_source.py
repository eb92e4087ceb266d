"""Secret draws: sizes, refusals, and that no member is favoured."""

from collections import Counter
from itertools import combinations

import pytest

from privacy.foundation.secure_source import SecureSource


def test_bytes_have_the_length_asked_for_and_do_not_repeat() -> None:
    source = SecureSource()

    assert [len(source.bytes(count)) for count in (0, 1, 16, 1000)] == [0, 1, 16, 1000]
    assert len({source.bytes(16) for _ in range(1000)}) == 1000


def test_a_choice_is_a_subset_without_repeats() -> None:
    population = [f"device-{number:04d}" for number in range(50)]

    chosen = SecureSource().choose(population, 20)

    assert len(set(chosen)) == 20
    assert set(chosen) <= set(population)


@pytest.mark.parametrize("k", [0, 3])
def test_nobody_and_everybody_can_be_chosen(k: int) -> None:
    assert sorted(SecureSource().choose(["a", "b", "c"], k)) == ["a", "b", "c"][:k]


def test_every_pair_is_equally_likely() -> None:
    # 6 pairs of 4, 6,000 draws: chi-squared with 5 degrees of freedom exceeds 55 with
    # probability 1.3e-10, the chance that this test fails by accident.
    source = SecureSource()

    seen = Counter(tuple(sorted(source.choose("abcd", 2))) for _ in range(6000))

    expected = 1000
    pairs = combinations("abcd", 2)
    assert sum((seen[pair] - expected) ** 2 / expected for pair in pairs) < 55


@pytest.mark.parametrize("k", [-1, 4])
def test_more_than_the_population_cannot_be_chosen(k: int) -> None:
    with pytest.raises(ValueError, match=f"k must be between 0 and the population of 3, got {k}"):
        SecureSource().choose(["a", "b", "c"], k)


def test_a_name_that_stands_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="each name once"):
        SecureSource().choose(["a", "b", "a"], 1)


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(ValueError, match="count must be >= 0, got -1"):
        SecureSource().bytes(-1)


def test_every_coin_is_thrown_by_itself() -> None:
    names = [f"device-{number}" for number in range(4000)]
    pairs = list(zip(names[::2], names[1::2], strict=True))

    drawn = set(SecureSource().flip(names, 0.25))

    # Binomial(4000, 1/4): mean 1000, deviation 27.4; pairs binomial(2000, 1/16): 125 and 10.8.
    # 5.5 deviations on either side fail falsely once in 10 million runs.
    assert abs(len(drawn) - 1000) < 5.5 * 27.4
    assert abs(sum(drawn.issuperset(pair) for pair in pairs) - 125) < 5.5 * 10.8


def test_a_rate_of_one_draws_everybody_in_order() -> None:
    names = [f"device-{number}" for number in range(1000)]

    assert SecureSource().flip(names, 1.0) == names


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, float("nan")])
def test_a_chance_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=r"rate must be in \(0, 1\]"):
        SecureSource().flip(["a"], rate)


def test_nobody_has_two_coins() -> None:
    with pytest.raises(ValueError, match="each name once"):
        SecureSource().flip(["a", "a"], 0.5)
