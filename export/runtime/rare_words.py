"""Words of a language that a model's list lacks: a strip completes and mends them all the same.

The model says how likely a word is that its list lacks; which one, their order by frequency does.
``rare_words.js`` does the same in the page.
"""

import functools
import math
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from export.runtime.word_tree import WordTree
from models.text.language_words import language_words
from models.text.vocabulary import Vocabulary

# By Zipf's law the word of rank r in a language is one of 1 / r, and -log p that it is one of those
# that a list lacks is log r and this, a little more as some are in no list at all.
_ZIPF = 2.0
_KEPT = 8


class RareWords:
    """The words that a list lacks; safe to share between threads.

    ``tree``: the words in alphabetical order.
    """

    def __init__(self, ranked: Sequence[str], vocabulary: Vocabulary) -> None:
        """Take the words that the vocabulary lacks of some words, most frequent first."""
        worth = {
            word: -math.log(rank) - _ZIPF
            for rank, word in enumerate(ranked, start=1)
            if word not in vocabulary
        }
        words = sorted(worth)
        self.tree = WordTree(words)
        self._worth = np.array([worth[word] for word in words], dtype=np.float64)
        self._places = {word: place for place, word in enumerate(words)}

    def worth(self, never: Collection[str]) -> NDArray[np.float64]:
        """Return log-probabilities in nats among all words that the list lacks, ``(words,)``.

        They are in the tree's order, and minus infinity for those of ``never``.
        """
        worth = self._worth.copy()
        worth[[self._places[word] for word in never if word in self._places]] = -math.inf
        return worth

    def worth_of(self, word: str) -> float | None:
        """Return the worth of a word; None if it is not one of them."""
        place = self._places.get(word)
        return None if place is None else float(self._worth[place])


@functools.lru_cache(_KEPT)
def rare_words(language: str, vocabulary: Vocabulary) -> RareWords:
    """Return the words of a language that ship with sotto and that a list lacks."""
    return RareWords(language_words(language), vocabulary)
