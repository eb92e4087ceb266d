"""Figures as pictures: what is thinned away, what never is, and where a line breaks."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.pages.curves import (
    Line,
    averaged,
    axis_scale,
    best_of,
    figure_in_words,
    picture,
    points_of,
    thinned,
    titled,
)

VALUES = st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), min_size=1, max_size=400)


@given(VALUES, st.integers(2, 50))
def test_ends_and_extremes_outlive_any_thinning(values: list[float], most: int) -> None:
    points = list(enumerate(values, start=1))

    kept = thinned(points, most)

    # A least value, a largest and a gap for each of most / 2 parts, and both ends.
    assert len(kept) <= 3 * most + 2
    assert set(kept) <= set(points)
    assert kept == sorted(kept, key=lambda point: point[0])
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    finite = [value for value in values if math.isfinite(value)]
    left = [value for _, value in kept if math.isfinite(value)]
    if finite:
        assert (min(left), max(left)) == (min(finite), max(finite))
    assert any(map(math.isnan, values)) == any(math.isnan(value) for _, value in kept)


def test_many_values_become_the_means_of_their_parts() -> None:
    # 240 values in 120 parts of two: 1.5, 3.5, ...; a part without a finite value has none.
    values = [float(number) for number in range(1, 239)] + [math.nan, math.nan]

    means = averaged(list(enumerate(values, start=1)))

    assert [value for _, value in means[:2]] == [1.5, 3.5]
    assert (len(means), math.isnan(means[-1][1])) == (120, True)


def test_null_is_a_gap_and_a_round_without_the_figure_is_none() -> None:
    rounds: list[tuple[int, dict[str, object]]] = [
        (1, {"loss": 2.0}),
        (2, {"loss": None}),
        (3, {}),
        (4, {"loss": 1e308}),
        (5, {"loss": 1}),
    ]

    points = points_of(rounds, "loss")

    assert [number for number, _ in points] == [1, 2, 4, 5]
    assert [math.isnan(value) for _, value in points] == [False, True, True, False]


def test_a_line_breaks_at_a_gap_and_a_value_alone_is_a_dot() -> None:
    values = [1.0, 3.0, math.nan, 2.0]
    drawn = picture("loss", [Line("", 0, list(enumerate(values, start=1)))])

    (path,) = re.findall(r'<path class="line" d="([^"]*)"', drawn)
    first, second = path.split("M")[1:]
    # Rounds 1 to 4 stand from 46 to 352, so 102 apart; the last is drawn from itself to itself.
    assert [step.split()[0] for step in first.split("L")] == ["46.0", "148.0"]
    assert second.split("L") == [second.split("L")[0]] * 2
    assert "1 of 4 values are not finite" in drawn


def test_a_caption_tells_the_last_and_the_best_value() -> None:
    falling = Line("a", 0, [(1, 90.0), (2, 70.0), (3, 80.0)])
    lower = Line("b", 1, [(1, 95.0), (2, 65.5)])

    assert "80 in round 3; best 70 in round 2" in picture("valid_perplexity", [falling])
    assert "best 65.5 in round 2, b" in picture("valid_perplexity", [falling, lower])
    assert best_of("accuracy", falling.points) == (1, 90.0)
    assert best_of("round_s", falling.points) is None


def test_what_diverged_in_every_round_is_said_and_not_drawn() -> None:
    drawn = picture("perplexity", [Line("", 0, [(1, math.nan), (2, math.nan)])])

    assert "not finite in any of 2 values" in drawn
    assert "<svg" not in drawn


@pytest.mark.parametrize(
    ("figure", "values", "ticks"),
    [
        ("loss", [0.0, 1.0], ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        ("perplexity", [100.0, 10_000.0], ["100", "500", "2k", "10k"]),
        # A share is told apart by its difference, however far apart.
        ("accuracy", [0.01, 1.0], ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        ("update_bytes", [1e6, 3e6], ["1M", "1.5M", "2M", "2.5M", "3M"]),
        ("perplexity", [1e10, 1e16], ["10G", "1e12", "1e14", "1e16"]),
        ("loss", [0.0, 0.0], ["-1", "-0.5", "0", "0.5", "1"]),
        ("loss", [7.0], ["6.8", "7", "7.2"]),
    ],
)
def test_an_axis_has_round_values(figure: str, values: list[float], ticks: list[str]) -> None:
    drawn = picture(figure, [Line("", 0, list(enumerate(values, start=1)))])

    found = re.findall(r'text-anchor="end">([^<]*)<', drawn)
    assert [tick for tick in found if tick not in (str(len(values)), "round 1")] == ticks


def test_extreme_values_are_drawn() -> None:
    for values in ([-1e299, 1e299], [1e-300, 1e299], [5e-324, 1.0]):
        assert "nan" not in picture("loss", [Line("", 0, list(enumerate(values)))])


def test_names_and_values_are_in_words() -> None:
    assert (titled("round_s"), titled("valid_perplexity")) == ("round, seconds", "valid perplexity")
    assert [figure_in_words(value) for value in (0.12345, 412_345.0, 1e20)] == [
        "0.1235",
        "412,345",
        "1e+20",
    ]


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([0.1, 0.3, 10.0], "log"),
        ([1.0, 2.0, 4.0], "linear"),
        ([0.0, 0.5, 100.0], "linear"),
        ([-1.0, 50.0], "linear"),
        ([3.0], "linear"),
    ],
)
def test_values_that_lie_far_apart_are_told_apart_by_their_ratio(
    values: list[float], scale: str
) -> None:
    assert axis_scale(values) == scale
