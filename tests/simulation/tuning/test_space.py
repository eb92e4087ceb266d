import random

import pytest

from simulation.tuning.space import Choices, Range, draw, make_space, parse_dimension


def test_a_range_and_a_list_are_read() -> None:
    assert parse_dimension("noise_multiplier=0.5..8") == ("noise_multiplier", Range(0.5, 8.0))
    assert parse_dimension("cohort=100,200") == ("cohort", Choices((100.0, 200.0)))


def test_a_range_over_a_factor_of_ten_is_logarithmic() -> None:
    assert Range(0.5, 5.0).is_logarithmic
    assert not Range(0.5, 4.9).is_logarithmic
    assert not Range(0.0, 9.0).is_logarithmic


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("noise=1..2", "takes one of noise_multiplier"),
        ("clipping_norm=2..1", "the lower end first"),
        ("clipping_norm=one", "must read like clipping_norm="),
        ("clipping_norm=", "must read like"),
        ("clipping_norm=1..inf", "must read like"),
    ],
)
def test_what_cannot_be_searched_is_refused_with_an_example(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_dimension(text)


def test_an_unknown_mode_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="central, ftrl, local"):
        make_space(["paper"], ["mean"], {}, clipping_norm=1.0, cohort=10)


def test_draws_lie_in_the_space() -> None:
    searched = dict([parse_dimension("noise_multiplier=0.1..10"), parse_dimension("cohort=7,9")])
    space = make_space(["central"], ["mean", "attentive"], searched, clipping_norm=5.0, cohort=3)

    drawn = [draw(space, random.Random(seed)) for seed in range(200)]

    assert all(0.1 <= one.noise_multiplier <= 10 for one in drawn)
    assert all(0.5 <= one.clipping_norm <= 5 for one in drawn)
    assert {one.cohort for one in drawn} == {7, 9}
    assert {one.rule for one in drawn} == {"mean", "attentive"}
    assert all((one.attention_strength == 0) == (one.rule == "mean") for one in drawn)
    # Half of a logarithmic range from 0.1 to 10 lies below 1: at 200 draws, 100 ± 5 deviations.
    assert 65 < sum(one.noise_multiplier < 1 for one in drawn) < 135
