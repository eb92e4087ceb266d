import pytest

from models.listening.heard_letters import (
    HEARD,
    SYMBOL_COUNT,
    collapse,
    encode_heard,
    heard_letters,
    steps_needed,
)


def test_marks_are_pauses_and_pauses_are_single_blanks() -> None:
    assert (
        heard_letters(" at noon, the fox-hunter's dog: gone!")
        == "at noon the fox hunter's dog gone"
    )


def test_repeats_count_once_unless_nothing_is_between() -> None:
    o, n, nothing = HEARD.index("o") + 1, HEARD.index("n") + 1, 0

    assert collapse([n, n, nothing, o, nothing, o, o, n]) == "noon"
    assert collapse([n, o, o, n]) == "non"
    assert collapse([nothing, nothing]) == ""


def test_numbers_stand_for_what_they_came_from() -> None:
    numbers = encode_heard("don't go")

    assert collapse(numbers) == "don't go"
    assert steps_needed(encode_heard("noon")) == 5


def test_what_is_not_heard_is_refused() -> None:
    with pytest.raises(ValueError, match=r"U\+002C"):
        encode_heard("no, never")
    with pytest.raises(ValueError, match=f"got {SYMBOL_COUNT}"):
        collapse([SYMBOL_COUNT])
