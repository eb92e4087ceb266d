"""Find the words of a list that begin with what is typed, likeliest first.

The words stand in alphabetical order, so those with one beginning stand together and two binary
searches find them. One index serves every text on the same word list.
"""

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from export.runtime.word_tree import WordTree
from models.text.vocabulary import NEVER_SUGGESTED, Vocabulary

_LAST_CHARACTER = "\U0010ffff"


class WordIndex:
    """The words of one list as they are typed, in alphabetical order; threads may share it.

    ``tree``: the same words, to be found by letters with a slip.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Sort the list, without ``<unk>`` and ``<eos>``."""
        rows = [row for row in range(len(vocabulary)) if row not in NEVER_SUGGESTED]
        rows.sort(key=lambda row: vocabulary.typed[row])
        self._rows = np.array(rows, dtype=np.int64)
        self._words = [vocabulary.typed[row] for row in rows]
        self.tree = WordTree(self._words, shown=[vocabulary.words[row] for row in rows])

    @property
    def rows(self) -> NDArray[np.int64]:
        """Return the row of each word in alphabetical order."""
        return self._rows

    def rows_that_begin(self, begun: str) -> NDArray[np.int64]:
        """Return the rows of the words that begin so, in alphabetical order."""
        first = bisect_left(self._words, begun)
        last = bisect_left(self._words, begun + _LAST_CHARACTER, first)
        return self._rows[first:last]

    def likeliest(
        self, begun: str, scores: NDArray[np.float32] | NDArray[np.float64], *, count: int
    ) -> NDArray[np.int64]:
        """Return the rows of at most ``count`` words that begin so, likeliest first.

        ``scores`` has one for each row, shape ``(vocab,)``; higher is likelier.
        """
        rows = self.rows_that_begin(begun)
        found = scores[rows]
        if len(rows) > count:
            best = np.argpartition(found, -count)[-count:]
            rows, found = rows[best], found[best]
        return rows[np.argsort(-found, kind="stable")]
