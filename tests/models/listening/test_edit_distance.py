import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.listening.edit_distance import ReadingErrors, edit_distance, reading_errors

WORDS = st.text(alphabet="ab ", max_size=8)


@pytest.mark.parametrize(
    ("written", "read", "edits"),
    [
        ("the cat", "the cat", 0),
        ("the cat", "a cat", 3),
        ("kitten", "sitting", 3),
        ("gate", "", 4),
        ("", "gate", 4),
        ("flaw", "lawn", 2),
    ],
)
def test_edits_are_those_counted_by_hand(written: str, read: str, edits: int) -> None:
    assert edit_distance(written, read) == edits


@given(WORDS, WORDS, WORDS)
def test_it_is_a_distance(first: str, second: str, third: str) -> None:
    between = edit_distance(first, second)

    assert between == edit_distance(second, first)
    assert (between == 0) == (first == second)
    assert between <= edit_distance(first, third) + edit_distance(third, second)
    assert abs(len(first) - len(second)) <= between <= max(len(first), len(second))


@given(WORDS, WORDS, WORDS, WORDS)
def test_what_both_begin_and_end_with_costs_nothing(
    first: str, second: str, start: str, end: str
) -> None:
    inner = edit_distance(first, second)

    assert edit_distance(start + first + end, start + second + end) == inner


def test_rates_are_of_all_characters_together() -> None:
    errors = reading_errors("kitten", "sitting") + reading_errors("gate", "")

    # Seven edits of ten characters, not the mean of 3/6 and 4/4.
    assert errors == ReadingErrors(edits=7, characters=10)
    assert errors.rate == pytest.approx(0.7)


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one character"):
        _ = reading_errors("", "a").rate
