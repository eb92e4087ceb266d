"""Word lists: which word each row of a next-word model stands for.

A list is text, one word a line, ``<unk>`` first and ``<eos>`` second, most frequent words next. A
deployment uses a public list, such as the shipped ``data/english-10k.txt``. Counting words of a
training split is for simulation only: across real devices nobody could do it.

A list writes a word as a strip is to show it, as German writes ``Haus``; typed text finds it in
small letters, with i for a dotless ı and with ss for ß too. A word that ends in an apostrophe is
elided, as French ``l'``: ``l'heure`` is read as ``l'`` and ``heure``.
"""

import functools
import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from models.text.letters import is_emoji, is_unparted
from models.text.words import EOS_WORD, UNK_WORD, as_read, may_be_word

UNK = 0
EOS = 1
NEVER_SUGGESTED = (UNK, EOS)
"""Rows that no strip shows: neither is a word that somebody could take."""
SHIPPED_NAME = "english-10k"
SHIPPED_SIZE = 10_000


# A capital I says nothing of a dot, and Switzerland has no ß.
_ALIKE = (("ı", "i"), ("ß", "ss"))


class VocabularyError(ValueError):
    """Raised when a word list breaks a rule; the text names the line."""


@dataclass(frozen=True)
class Vocabulary:
    """A list of words, each with its row.

    Attributes:
        words: Every word once; ``<unk>`` at 0, ``<eos>`` at 1, no digits and no addresses.
        is_exact: Whether text has each word just as the list has it, as a training split that is
            published in tokens has; capitals tell words apart then.
        typed: Each word as it is read from typed text.
        elided: Those that lean on the next word, as they are read.
    """

    words: tuple[str, ...]
    is_exact: bool = field(default=False, repr=False, compare=False, kw_only=True)
    typed: tuple[str, ...] = field(init=False, repr=False, compare=False)
    elided: frozenset[str] = field(init=False, repr=False, compare=False)
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
        typed = self.words if self.is_exact else self._read_rows(rows)
        elided = () if self.is_exact else (word for word in typed if word[1:].endswith("'"))
        object.__setattr__(self, "typed", typed)
        object.__setattr__(self, "elided", frozenset(elided))
        object.__setattr__(self, "_rows", rows)

    def _read_rows(self, rows: dict[str, int]) -> tuple[str, ...]:
        """Let typed text find every word, and return the words as they are typed."""
        typed = []
        for row, word in enumerate(self.words):
            small = as_read(word)
            typed.append(small if rows.setdefault(small, row) == row else word)
        for row, word in enumerate(typed):
            for letter, alike in _ALIKE:
                rows.setdefault(word.replace(letter, alike), row)
        return tuple(typed)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._rows

    def encode(self, words: Iterable[str]) -> list[int]:
        """Return the row of each word, `UNK` where the list does not have it."""
        rows = self._rows
        return [rows.get(word, UNK) for word in words]

    def parts(self, words: Iterable[str]) -> list[str]:
        """Return typed words as the list reads them.

        An elided word stands apart from the one it leans on. An emoji that the list lacks is
        passed over, as other signs are, and so is writing without blanks between words.
        """
        if self.is_exact:
            return list(words)
        rows, found = self._rows, []
        for word in words:
            if word in rows:
                found.append(word)
            elif not (is_emoji(word) or is_unparted(word)):
                head, rest = self.elision(word)
                found += [head, *self.parts([rest])] if head else [word]
        return found

    def elision(self, word: str) -> tuple[str, str]:
        """Return the elided word with which a word begins, or "", and what is left of it."""
        at = word.find("'") + 1
        is_whole = word in self._rows and at < len(word)
        if is_whole or word[:at] not in self.elided:
            return "", word
        return word[:at], word[at:]

    def read(self, sentences: Iterable[Sequence[str]]) -> Iterator[list[str]]:
        """Yield the `parts` of each sentence; one of which nothing is left is passed over."""
        for sentence in sentences:
            parts = self.parts(sentence)
            if parts or not sentence:
                yield parts

    def token_stream(self, sentences: Iterable[Sequence[str]]) -> "array[int]":
        """Return one user's text as int64 rows, each sentence followed by `EOS`."""
        stream = array("q")
        for sentence in self.read(sentences):
            stream.extend(self.encode(sentence))
            stream.append(EOS)
        return stream

    def cut(self, size: int) -> "Vocabulary":
        """Return the first ``size`` words; raise ``VocabularyError`` if there are fewer."""
        if size > len(self.words):
            raise VocabularyError(f"size must be <= {len(self.words)}, got {size}")
        if size == len(self.words):
            return self
        return Vocabulary(self.words[:size], is_exact=self.is_exact)

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
    return Vocabulary((UNK_WORD, EOS_WORD, *kept[:room]), is_exact=True)
