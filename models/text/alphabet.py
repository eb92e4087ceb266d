"""The alphabet of character models: the 100 printable characters of ASCII. No torch.

The alphabet is fixed, so federations of characters have no list to agree on. Any other character is
read as ``UNKNOWN``, so that one accent does not make a text unusable; the model never writes it.

References:
    [FedTP] Li et al., arXiv:2211.01572: 100 printable characters for Shakespeare.
"""

import string

ALPHABET = string.printable
"""Digits, letters, punctuation, blanks: a character's number is its place here."""

UNKNOWN = ALPHABET.index("\v")
"""Number of every other character: the vertical tab's, which no text uses."""

_NUMBERS = {character: number for number, character in enumerate(ALPHABET)}


def encode_characters(text: str) -> list[int]:
    """Return the number of each character, in [0, 100)."""
    return [_NUMBERS.get(character, UNKNOWN) for character in text]
