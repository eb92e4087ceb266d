"""Rank words for one person: the model's mixed with the person's own, without blocked ones."""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from export.runtime.next_word import Reading, Suggestion
from export.runtime.personal_cache import PersonalCache
from export.runtime.word_index import WordIndex
from models.text.vocabulary import NEVER_SUGGESTED, Vocabulary

CACHE_SHARE = 0.15


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
            cache_share: l of the mixture, in [0, 1): how much the person's own words count.
            blocked: Words, lower-case, that are never suggested, whoever typed them.

        Raises:
            ValueError: If the share is out of its range, or every word of the list is blocked.
        """
        if not 0 <= cache_share < 1:
            raise ValueError(f"cache_share must be in [0, 1), got {cache_share}")
        self._vocabulary = vocabulary
        self._index = index
        self._cache = PersonalCache() if cache is None else cache
        self._share = cache_share
        self._blocked = frozenset(blocked)
        self._never = frozenset((*NEVER_SUGGESTED, *vocabulary.encode(self._blocked)))
        if len(self._never) == len(vocabulary):
            raise ValueError(
                f"blocked words must leave a word to suggest, but all {len(vocabulary) - 2:,} of "
                "the word list are blocked"
            )

    @property
    def never(self) -> frozenset[int]:
        """Return the rows that are never suggested."""
        return self._never

    def rank(self, reading: Reading, *, count: int) -> list[Suggestion]:
        """Return at most ``count`` words that begin as typed, likeliest first."""
        if self._share and len(self._cache):
            return self._rank_mixed(reading, count)
        if not reading.begun:
            found = self._suggestions(reading.ranked, reading.distribution)
            if len(found) >= count:
                return found[:count]
        needed = count + len(self._never)
        rows = self._index.likeliest(reading.begun, reading.distribution, count=needed)
        return self._suggestions(rows, reading.distribution)[:count]

    def _rank_mixed(self, reading: Reading, count: int) -> list[Suggestion]:
        """Rank by p = (1 - l) p_model + l p_cache."""
        mixed = (1 - self._share) * np.exp(reading.distribution.astype(np.float64))
        new = self._mix_in(mixed, reading.begun)
        with np.errstate(divide="ignore"):  # a word of probability 0 is ranked last
            scores = np.log(mixed)
        rows = self._index.likeliest(reading.begun, scores, count=count + len(self._never))
        known = self._suggestions(rows, scores)
        # Sorting is stable: among words too unlikely for a number the order above holds.
        return sorted([*known, *new], key=lambda word: -word.probability)[:count]

    def _suggestions(
        self, rows: NDArray[np.int64], scores: NDArray[np.float32] | NDArray[np.float64]
    ) -> list[Suggestion]:
        return [
            Suggestion(self._vocabulary.words[row], math.exp(float(scores[row])))
            for row in rows.tolist()
            if row not in self._never
        ]

    def _mix_in(self, mixed: NDArray[np.float64], begun: str) -> list[Suggestion]:
        """Add the person's words to the probabilities; return those that the word list lacks."""
        new = []
        for word, own in self._cache.words():
            if not word.startswith(begun):
                continue
            if word in self._vocabulary:
                mixed[self._vocabulary.encode([word])[0]] += self._share * own
            elif word not in self._blocked and word != begun and self._cache.is_settled(word):
                new.append(Suggestion(word, self._share * own))
        return new
