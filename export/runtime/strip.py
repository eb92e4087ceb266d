"""Fill the suggestion strip of a keyboard: three slots, the best word in the centre.

Words stand in the person's case, blocked ones are left out, the person's own come oftener, and a
slip is mended: a blank takes a correction in the centre, and what is typed is then in the left
place. Else a blank keeps what is typed, so a word that stands there already is no suggestion, and
the verbatim slot takes the left place only if words are too few to fill it.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from export.blocked.blocked_words import blocked_words
from export.runtime.casing import cased
from export.runtime.corrections import OFFERED, Corrections
from export.runtime.next_word import SLOTS, NextWords, Reading, Suggestion, WordModel
from export.runtime.personal_cache import PersonalCache
from export.runtime.personal_ranking import CACHE_SHARE, PersonalRanking
from export.runtime.word_index import WordIndex
from models.text.letters import MARKS
from models.text.vocabulary import Vocabulary
from models.text.words import RUN, tokenise
from privacy.foundation.bounded_files import read_bounded

_TYPED = re.compile(rf"{RUN}(?:['’](?:[^\W_]|[{MARKS}])*)*\Z")

_LONGEST_WORD = 256
_LARGEST_LIST_BYTES = 16 << 20


@dataclass(frozen=True)
class Slot:
    """One place of the strip: the text shown, and typed when it is taken.

    Attributes:
        kind: A suggestion, what is typed already, or a correction, which is taken by a blank or a
            mark too.
    """

    text: str
    kind: Literal["word", "verbatim", "correction"] = "word"


@dataclass(frozen=True)
class Strip:
    """The three places from left to right; None is empty."""

    left: Slot | None
    centre: Slot | None
    right: Slot | None


def fill_strip(words: Sequence[str], typed: str, *, is_mended: bool = False) -> Strip:
    """Put the first three words, likeliest first, in the case to be shown, into their places.

    What is typed is none of them.

    Args:
        typed: The word that is begun, as it was typed; empty if none is.
        is_mended: Whether the first word is a correction of it that a blank takes.
    """
    is_mended = is_mended and bool(words) and words[0] != typed
    words = [word for word in words if word != typed]
    best, second, third, *_ = (*(Slot(word) for word in words[:SLOTS]), None, None, None)
    if is_mended:
        return Strip(Slot(typed, "verbatim"), Slot(words[0], "correction"), second)
    left, right = second, third
    if right is None and typed:
        left, right = Slot(typed, "verbatim"), second
    return Strip(left, best, right)


def typed_word(text: str) -> str:
    """Return the word that is begun at the end of a text, as it was typed; empty if none is."""
    found = _TYPED.search(unicodedata.normalize("NFC", text[-_LONGEST_WORD:]))
    return found[0] if found else ""


class Keyboard:
    """One person's text field, whose strip is filled; one thread at a time."""

    def __init__(
        self,
        graph: WordModel,
        vocabulary: Vocabulary,
        *,
        languages: Sequence[str] = (),
        cache: PersonalCache | None = None,
        cache_share: float = CACHE_SHARE,
        blocked: Iterable[str] | None = None,
        index: WordIndex | None = None,
    ) -> None:
        """Begin with an empty text.

        Args:
            languages: BCP 47 tags of the word list, as in the bundle's manifest.
            cache: The person's own words, shared by all their text fields.
            cache_share: How much they count once there are many, in [0, 1).
            blocked: Words, lower-case, that are never suggested and never learnt; absent, those of
                the languages' shipped lists (`export.blocked`), and ``()`` for none.
            index: Index of the vocabulary, which many texts can share; made if absent.

        Raises:
            ValueError: If the share is out of its range, graph and vocabulary differ in size, or
                every word is blocked.
        """
        index = WordIndex(vocabulary) if index is None else index
        self._words = NextWords(graph, vocabulary, index=index)
        self._cache = PersonalCache() if cache is None else cache
        self._blocked = blocked_words(languages) if blocked is None else frozenset(blocked)
        self._languages = tuple(languages)
        self._ranking = PersonalRanking(
            vocabulary, index, cache=self._cache, cache_share=cache_share, blocked=self._blocked
        )
        self._corrections = Corrections(vocabulary, languages=languages)
        self._kept: set[str] = set()

    def suggest(self, text: str) -> Strip:
        """Return the strip for the end of a text, everything typed so far; it may be all empty."""
        reading = self._words.read(text)
        if reading is None:
            return fill_strip((), "")
        found = self._ranking.rank(reading, count=OFFERED)
        return shown_strip(
            self._corrections,
            found,
            reading,
            text,
            ranking=self._ranking,
            languages=self._languages,
            kept=self._kept,
        )

    def keep(self, word: str, *, incognito: bool = False) -> None:
        """Never correct a word again: its person took the correction back.

        It is taken into the person's own words too, unless ``incognito``.
        """
        self._kept.update(tokenise(word))
        if not incognito:
            self._cache.insist(word, never=self._blocked)

    def learn(self, text: str, *, incognito: bool = False) -> None:
        """Take the words of a finished text into the person's own; nothing if ``incognito``."""
        if not incognito:
            self._cache.learn(text, never=self._blocked)


def shown_strip(
    corrections: Corrections,
    completions: Sequence[Suggestion],
    reading: Reading,
    text: str,
    *,
    ranking: PersonalRanking,
    languages: Sequence[str],
    kept: Collection[str] = (),
) -> Strip:
    """Return the strip for a text, in the person's case.

    Args:
        completions: Words that begin as typed, likeliest first.
        reading: The end of the text.
        ranking: What ranked them.
        languages: BCP 47 tags of the word list.
        kept: Lower-case words that are not corrected.
    """
    typed = typed_word(text)
    # What is elided stays as it was typed, in front of every word.
    head, rest = typed[: len(reading.head)], typed[len(reading.head) :]
    offer = corrections.offer(completions, reading, rest, ranking=ranking, kept=kept)
    begins_sentence = reading.begins_sentence and not head
    shown = (
        head + cased(word, rest, begins_sentence=begins_sentence, languages=languages)
        for word in offer.words
    )
    return fill_strip(list(dict.fromkeys(shown)), typed, is_mended=offer.is_mended)


def read_blocklist(path: Path) -> frozenset[str]:
    """Read words that are never suggested: UTF-8, one a line, ``#`` begins a comment.

    Raise ValueError if the file cannot be read or a line holds more than one word.
    """
    try:
        lines = read_bounded(path, _LARGEST_LIST_BYTES).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    words = [unicodedata.normalize("NFC", line.partition("#")[0].strip().lower()) for line in lines]
    for number, word in enumerate(words, start=1):
        if len(word.split()) > 1:
            raise ValueError(f"line {number} of {path} must be one word, got several")
    return frozenset(filter(None, words))
