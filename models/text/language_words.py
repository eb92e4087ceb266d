"""The words of a language that ship with sotto, far more of them than a model's list has.

A strip completes and mends what the model does not know. ``data/english-rare.txt`` goes on where
``data/english-10k.txt`` ends; other languages have none.
"""

import functools
from pathlib import Path

from models.text.languages import primary
from models.text.vocabulary import SHIPPED_NAME
from models.text.words import EOS_WORD, UNK_WORD

_DATA = Path(__file__).parents[1] / "data"
_FILES = {"en": (f"{SHIPPED_NAME}.txt", "english-rare.txt")}
SHIPPED_LANGUAGES = tuple(_FILES)
_NOTE = "#"


@functools.cache
def language_file(language: str) -> bytes:
    """Return the words of a language as a file to be passed on; empty if none ship.

    UTF-8, one a line, by falling frequency as far as it is known; ``<unk>``, ``<eos>`` and lines
    that begin with ``#`` are no words.

    Args:
        language: BCP 47 tag, such as ``en-GB``; the language alone counts.
    """
    return b"".join((_DATA / name).read_bytes() for name in _FILES.get(primary(language), ()))


def language_words(language: str) -> list[str]:
    """Return the words of `language_file`, most frequent first."""
    lines = language_file(language).decode().splitlines()
    return [line for line in lines if line not in (UNK_WORD, EOS_WORD) and line[0] != _NOTE]
