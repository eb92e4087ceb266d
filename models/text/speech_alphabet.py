"""The characters that a voice reads, and their numbers. No torch; a plan carries the settings.

The alphabet is part of the plan, so every device numbers the same character alike. A text is
numbered only after `models.text.spoken_text` has put it into words; a character without a number is
then an error, never a guess.

References:
    [FedDT-TTS] arXiv:2107.08795, section 3.1: lower case, a blank before, a period after.
"""

from typing import Literal

import msgspec

START = " "
END = "."

PUNCTUATION = "!',-.:;?"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
ALPHABET = START + PUNCTUATION + LETTERS
"""Every character a voice reads; a character's number is its place here plus one."""


class SpeechTextSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which characters a voice reads, and what happens to a sign that has no reading.

    Attributes:
        alphabet: Characters in order of their numbers, which start at 1 (0 pads); without ``.`` and
            the blank no text could begin or end.
        unknown: ``refuse`` a text with a sign nobody reads aloud (an emoji, an arrow), or ``drop``
            the sign and count it. Letters and digits of other scripts are refused either way:
            without them the text would no longer say what was spoken.
    """

    alphabet: str = ALPHABET
    unknown: Literal["refuse", "drop"] = "refuse"

    def __post_init__(self) -> None:
        if len(set(self.alphabet)) != len(self.alphabet):
            raise ValueError(f"alphabet must hold each character once, got {self.alphabet!r}")
        if missing := {START, END} - set(self.alphabet):
            raise ValueError(f"alphabet must hold a blank and a period, lacks {sorted(missing)}")
        if self.alphabet != self.alphabet.lower():
            raise ValueError(f"alphabet must be lower case, got {self.alphabet!r}")

    @property
    def symbol_count(self) -> int:
        """Return the rows of an embedding: the characters, and padding."""
        return len(self.alphabet) + 1


def encode_speech(text: str, settings: SpeechTextSettings) -> list[int]:
    """Return the number of each character, in [1, `symbol_count`); refuse others by name."""
    numbers = {character: place for place, character in enumerate(settings.alphabet, start=1)}
    for character in text:
        if character not in numbers:
            raise ValueError(
                f"a voice's text must be of {settings.alphabet!r}, got U+{ord(character):04X}; "
                "prepare it with prepare_speech"
            )
    return [numbers[character] for character in text]
