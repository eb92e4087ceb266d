"""Rank words for one person: the model's mixed with the person's own, without blocked ones."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from export.runtime.next_word import Reading, Suggestion
from export.runtime.personal_cache import PersonalCache
from export.runtime.word_index import WordIndex
from export.runtime.word_tree import WordTree
from models.text.vocabulary import NEVER_SUGGESTED, Vocabulary

CACHE_SHARE = 0.25
HALF_SHARE_WORDS = 400
"""A person whose words come to so many, old ones counting less, has half of the share: a few words
tell little of the next."""


class OwnWords:
    """Some of the person's words that the list lacks, none blocked.

    ``shares``: how likely each is, in alphabetical order. ``worth``: the same as logarithms, shape
    ``(words,)``. ``tree``: the words, to be found by letters with a slip.
    """

    def __init__(self, shares: Mapping[str, float]) -> None:
        """Take the words with their shares above 0, in any order."""
        self.shares = dict(sorted(shares.items()))
        self.worth: NDArray[np.float64] = np.log(np.array(list(self.shares.values()), np.float64))
        self.tree = WordTree(list(self.shares))


NONE = OwnWords({})


@dataclass(frozen=True)
class Scores:
    """How likely each word stands at one place of a person's text.

    Attributes:
        rows: Log-probabilities of the list's words in nats, shape ``(vocab,)``.
        own: The person's words that the list lacks.
        once: Those that the person may have typed by a slip; none of ``own``.
    """

    rows: NDArray[np.float32] | NDArray[np.float64]
    own: OwnWords = NONE
    once: OwnWords = NONE


@dataclass(frozen=True)
class _Own:
    """The person's words at one state of the cache.

    Attributes:
        changes: The cache's state.
        rows: Of those that the list has, and their shares of all that was typed.
        new: The settled ones that it lacks, as likely as l p_cache.
        once: The others that it lacks.
    """

    changes: int
    rows: NDArray[np.int64]
    shares: NDArray[np.float64]
    new: OwnWords
    once: OwnWords


class PersonalRanking:
    """A ranking of the words that may stand at the end of one person's text."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        index: WordIndex,
        *,
        cache: PersonalCache | None = None,
        cache_share: float = CACHE_SHARE,
        blocked: Iterable[str] = (),
    ) -> None:
        """Take what is known of the person.

        Args:
            cache: The person's own words, read at every call.
            cache_share: What l of the mixture comes to with many words, in [0, 1): how much the
                person's own words count.
            blocked: Words, lower-case, that are never suggested, whoever typed them.

        Raises:
            ValueError: If the share is out of its range, or every word of the list is blocked.
        """
        if not 0 <= cache_share < 1:
            raise ValueError(f"cache_share must be in [0, 1), got {cache_share}")
        self.vocabulary = vocabulary
        self.index = index
        self.cache = PersonalCache() if cache is None else cache
        self.blocked = frozenset(blocked)
        self._share = cache_share
        self._never = frozenset((*NEVER_SUGGESTED, *vocabulary.encode(self.blocked)))
        if len(self._never) == len(vocabulary):
            raise ValueError(
                f"blocked words must leave a word to suggest, but all {len(vocabulary) - 2:,} of "
                "the word list are blocked"
            )
        self.never_rows = np.array(sorted(self._never), dtype=np.int64)
        self._own = self._own_words()

    @property
    def never(self) -> frozenset[int]:
        """Return the rows that are never suggested."""
        return self._never

    def rank(self, reading: Reading, *, count: int) -> list[Suggestion]:
        """Return at most ``count`` words that begin as typed, likeliest first."""
        if self._share and len(self.cache):
            return self._rank_mixed(reading, count)
        if not reading.begun:
            found = self._suggestions(reading.ranked, reading.distribution)
            if len(found) >= count:
                return found[:count]
        needed = count + len(self._never)
        rows = self.index.likeliest(reading.begun, reading.distribution, count=needed)
        return self._suggestions(rows, reading.distribution)[:count]

    def scores(self, reading: Reading) -> Scores:
        """Return p = (1 - l) p_model + l p_cache of every word, whatever is begun."""
        if not self._share or not len(self.cache):
            return Scores(reading.distribution)
        if self._own.changes != self.cache.changes:
            self._own = self._own_words()
        share = self._share_now
        mixed = (1 - share) * np.exp(reading.distribution.astype(np.float64))
        np.add.at(mixed, self._own.rows, share * self._own.shares)
        with np.errstate(divide="ignore"):  # a word of probability 0 is ranked last
            rows = np.log(mixed)
        return Scores(rows, self._own.new, self._own.once)

    def own_share(self, word: str) -> float:
        """Return l p_cache of a word, in [0, 1)."""
        return self._share_now * self.cache.share(word)

    @property
    def _share_now(self) -> float:
        typed = self.cache.amount
        return self._share * typed / (typed + HALF_SHARE_WORDS)

    def _rank_mixed(self, reading: Reading, count: int) -> list[Suggestion]:
        found = self.scores(reading)
        new = [
            Suggestion(word, own)
            for word, own in found.own.shares.items()
            if word.startswith(reading.begun) and word != reading.begun
        ]
        rows = self.index.likeliest(reading.begun, found.rows, count=count + len(self._never))
        known = self._suggestions(rows, found.rows)
        # Sorting is stable: among words too unlikely for a number the order above holds.
        return sorted([*known, *new], key=lambda word: -word.probability)[:count]

    def _suggestions(
        self, rows: NDArray[np.int64], scores: NDArray[np.float32] | NDArray[np.float64]
    ) -> list[Suggestion]:
        return [
            Suggestion(self.vocabulary.words[row], math.exp(float(scores[row])))
            for row in rows.tolist()
            if row not in self._never
        ]

    def _own_words(self) -> _Own:
        listed, shares = [], []
        new: dict[str, float] = {}
        once: dict[str, float] = {}
        share = self._share_now
        for typed, own in self.cache.words() if share else ():
            # An emoji that the list lacks is the person's own word.
            for word in self.vocabulary.parts([typed]) or [typed]:
                if word in self.vocabulary:
                    listed.append(word)
                    shares.append(own)
                elif word not in self.blocked:
                    (new if self.cache.is_settled(typed) else once)[word] = share * own
        return _Own(
            self.cache.changes,
            rows=np.array(self.vocabulary.encode(listed), dtype=np.int64),
            shares=np.array(shares, dtype=np.float64),
            new=OwnWords(new),
            once=OwnWords(once),
        )


def rankings(
    vocabulary: Vocabulary,
    index: WordIndex,
    *,
    shipped: frozenset[str],
    own: frozenset[str] = frozenset(),
) -> tuple[PersonalRanking, PersonalRanking]:
    """Return nobody's rankings: one without offensive words, one for people who allow them.

    Args:
        shipped: Offensive words, lower-case.
        own: Words that are blocked whatever the person says.
    """
    # An offensive word that the list lacks is suggested to nobody.
    unlisted = {word for word in shipped if word not in vocabulary}
    return (
        PersonalRanking(vocabulary, index, blocked=own | shipped),
        PersonalRanking(vocabulary, index, blocked=own | unlisted),
    )
