"""The characters that a recogniser hears: what a text keeps once it is sound. No torch.

Pauses are heard, but not which mark made them. So marks are blanks here, and a text is compared
with what was heard in this form on both sides.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from models.text.speech_alphabet import LETTERS, START

NOTHING = 0
"""Number of no character: the blank of CTC, and what fills up the shorter texts of a batch."""

HEARD = START + "'" + LETTERS
"""Every character that is heard; its number is its place here plus one."""

SYMBOL_COUNT = len(HEARD) + 1

_NUMBERS = {character: place for place, character in enumerate(HEARD, start=1)}


def heard_letters(text: str) -> str:
    """Return what is heard of a text as a voice reads it: letters, apostrophes, single blanks."""
    kept = "".join(character if character in _NUMBERS else START for character in text)
    return START.join(kept.split())


def encode_heard(text: str) -> list[int]:
    """Return the number of each character, in [1, `SYMBOL_COUNT`); refuse one that is not heard."""
    for character in text:
        if character not in _NUMBERS:
            raise ValueError(
                f"what is heard must be of {HEARD!r}, got U+{ord(character):04X}; prepare the "
                "text with heard_letters"
            )
    return [_NUMBERS[character] for character in text]


def collapse(numbers: Iterable[int]) -> str:
    """Return the text of one number a step: repeats count once, then `NOTHING` is left out."""
    text, before = [], NOTHING
    for number in numbers:
        if not 0 <= number < SYMBOL_COUNT:
            raise ValueError(f"a step's number must be in [0, {SYMBOL_COUNT}), got {number}")
        if number not in (before, NOTHING):
            text.append(HEARD[number - 1])
        before = number
    return START.join("".join(text).split())


def steps_needed(numbers: Sequence[int]) -> int:
    """Return the fewest steps that can spell the numbers: doubled ones need a blank between."""
    doubled = sum(number == after for number, after in pairwise(numbers))
    return len(numbers) + doubled
