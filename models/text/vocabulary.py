"""Word lists: which word each row of a next-word model stands for.

A list is text, one word a line, ``<unk>`` first and ``<eos>`` second, most frequent words next. A
deployment uses a public list, such as the shipped ``data/english-10k.txt``. Counting words of a
training split is for simulation only: across real devices nobody could do it.
"""

import functools
import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from models.text.words import EOS_WORD, UNK_WORD, may_be_word

UNK = 0
EOS = 1
NEVER_SUGGESTED = (UNK, EOS)
"""Rows that no strip shows: neither is a word that somebody could take."""
SHIPPED_NAME = "english-10k"
SHIPPED_SIZE = 10_000


class VocabularyError(ValueError):
    """Raised when a word list breaks a rule; the text names the line."""


@dataclass(frozen=True)
class Vocabulary:
    """A list of words, each with its row.

    Attributes:
        words: Every word once; ``<unk>`` at 0, ``<eos>`` at 1, no digits and no addresses.
    """

    words: tuple[str, ...]
    _rows: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for row, special in enumerate((UNK_WORD, EOS_WORD)):
            if len(self.words) <= row or self.words[row] != special:
                raise VocabularyError(f"line {row + 1} of a vocabulary must be {special}")
        if len(self.words) < 3:
            raise VocabularyError("a vocabulary must have at least one word after <eos>")
        rows: dict[str, int] = {}
        for row, word in enumerate(self.words):
            if not may_be_word(word):
                raise VocabularyError(
                    f"line {row + 1} of a vocabulary must be a word without digits, white space "
                    "and web or e-mail addresses"
                )
            if rows.setdefault(word, row) != row:
                raise VocabularyError(f"line {row + 1} of a vocabulary repeats {word!r}")
        object.__setattr__(self, "_rows", rows)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._rows

    def encode(self, words: Iterable[str]) -> list[int]:
        """Return the row of each word, `UNK` where the list does not have it."""
        rows = self._rows
        return [rows.get(word, UNK) for word in words]

    def token_stream(self, sentences: Iterable[Sequence[str]]) -> "array[int]":
        """Return one user's text as int64 rows, each sentence followed by `EOS`."""
        stream = array("q")
        for sentence in sentences:
            stream.extend(self.encode(sentence))
            stream.append(EOS)
        return stream

    def cut(self, size: int) -> "Vocabulary":
        """Return the first ``size`` words; raise ``VocabularyError`` if there are fewer."""
        if size > len(self.words):
            raise VocabularyError(f"size must be <= {len(self.words)}, got {size}")
        return self if size == len(self.words) else Vocabulary(self.words[:size])

    def to_bytes(self) -> bytes:
        """Return the list as it is stored and sent: UTF-8, one word a line."""
        return self._encoded

    @functools.cached_property
    def _encoded(self) -> bytes:
        return self._encode()

    def _encode(self) -> bytes:
        return "".join(f"{word}\n" for word in self.words).encode()

    @functools.cached_property
    def sha256(self) -> bytes:
        """Return the SHA-256 of `to_bytes`, 32 bytes; a plan carries it in hex."""
        return hashlib.sha256(self._encode()).digest()


def decode_vocabulary(encoded: bytes) -> Vocabulary:
    """Return the list that `Vocabulary.to_bytes` wrote, or raise ``VocabularyError``."""
    try:
        text = encoded.decode()
    except UnicodeDecodeError as error:
        raise VocabularyError(f"a vocabulary must be UTF-8 text ({error.reason})") from None
    return Vocabulary(tuple(text.removesuffix("\n").split("\n")))


def load_vocabulary(path: Path) -> Vocabulary:
    """Read a word list from a file, or raise ``VocabularyError``."""
    try:
        return decode_vocabulary(path.read_bytes())
    except OSError as error:
        raise VocabularyError(f"{path} cannot be read: {error.strerror}") from None
    except VocabularyError as error:
        raise VocabularyError(f"{path}: {error}") from None


@functools.cache
def shipped_vocabulary(size: int = SHIPPED_SIZE) -> Vocabulary:
    """Return the ``size`` most frequent words, 3 to 10,000, of the shipped English list."""
    shipped = Path(__file__).parents[1] / "data" / f"{SHIPPED_NAME}.txt"
    return decode_vocabulary(shipped.read_bytes()).cut(size)


def build_vocabulary(sentences: Iterable[Sequence[str]], size: int | None = None) -> Vocabulary:
    """Return the most frequent words of a training split as a list; None takes every word.

    For simulation only, in modes without a guarantee, and never from test text. Words of equal
    count are in alphabetical order; words with digits and addresses are left out. ``size`` counts
    ``<unk>`` and ``<eos>``.
    """
    counts = Counter(word for sentence in sentences for word in sentence)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    kept = [word for word in ranked if word not in (UNK_WORD, EOS_WORD) and may_be_word(word)]
    room = len(kept) if size is None else max(size - 2, 0)
    return Vocabulary((UNK_WORD, EOS_WORD, *kept[:room]))
