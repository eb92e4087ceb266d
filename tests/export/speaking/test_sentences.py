"""A text in the pieces that a voice says at once."""

import pytest

from export.speaking.sentences import LONGEST_TEXT, sentences
from models.text.speech_alphabet import SpeechTextSettings
from models.text.spoken_text import SpeechTextError

ENGLISH = SpeechTextSettings()


def test_a_sentence_ends_where_no_abbreviation_or_number_does() -> None:
    text = "Dr. Smith paid $3.50. Did he? No!  He left at 4 p.m. today"

    found = sentences(text, ENGLISH, longest=200)

    assert found == [
        " doctor smith paid three dollars and fifty cents.",
        " did he?.",
        " no!.",
        " he left at four p m today.",
    ]


def test_a_sentence_that_is_too_long_is_cut_at_pauses_then_between_words() -> None:
    # 18 characters with the blank before and the period after: 16 are left.
    found = sentences("One, two, three; four five six seven eight", ENGLISH, longest=18)

    assert found == [" one, two, three.", " four five six.", " seven eight."]
    assert all(len(part) <= 18 for part in found)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "got an empty one"),
        (" \n\t", "got an empty one"),
        ("?!...", "got only signs"),
        ("привет", r"in the letters a to z, got U\+0432 x 1"),
        ("go → there", r"signs that are read aloud, got U\+2192 x 1"),
        ("a\x00b", r"got U\+0000 x 1"),
        ("yes " + "a" * 40, "a word must have at most 16 characters for this voice, got one of 40"),
        ("a " * (1 << 19), f"at most {LONGEST_TEXT} characters, got 1048576; speak it in parts"),
    ],
    ids=["empty", "blank", "signs", "Cyrillic", "arrow", "control", "word", "megabyte"],
)
def test_what_cannot_be_said_is_refused(text: str, rule: str) -> None:
    with pytest.raises(SpeechTextError, match=rule):
        sentences(text, ENGLISH, longest=18)


def test_signs_that_the_plan_drops_are_dropped() -> None:
    dropping = SpeechTextSettings(unknown="drop")

    assert sentences("go → there", dropping, longest=18) == [" go there."]
