"""Which words one update of a word model gives away.

A reader of an update sees, for each word, how its embedding row and its output bias moved. Where
the embedding is also the output matrix, rows of words that were not typed all move alike, away from
what was read; rows of typed words leave that common way. Biases of typed words rise. The measure is
the AUC: the chance that a word that was typed scores above one that was not. 0.5 is a blind guess,
1 a complete list of the person's words.

Common words are typed by nearly everyone, so a guess by public word frequency alone is far above
0.5. An update gives away what its AUC has above that one.

References:
    [Melis] Melis et al., "Exploiting Unintended Feature Leakage in Collaborative Learning",
        IEEE S&P 2019, arXiv:1805.04049 (section 4.1: embedding gradients show a batch's words).
"""

import msgspec
import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from privacy.auditing.scores import AuditError, Coins, Scores, checked_coins, checked_scores


class WordLeakage(msgspec.Struct, frozen=True, kw_only=True):
    """How well words can be told from one update, as AUC in [0, 1].

    By how far embedding rows leave the way of most, by the output bias, by the sum of both ranks,
    and by public word frequency, without the update.
    """

    by_row: float
    by_bias: float
    by_both: float
    by_frequency: float


def word_leakage(
    rows: ArrayLike, bias: ArrayLike, frequency: ArrayLike, typed: ArrayLike
) -> WordLeakage:
    """Return how well an update tells the words of a text.

    Args:
        rows: Update of each word's embedding row, shape ``(vocab, embed)``.
        bias: Update of each word's output bias, shape ``(vocab,)``.
        frequency: Public frequency of each word in any rising scale, shape ``(vocab,)``.
        typed: Whether the text has the word, shape ``(vocab,)``.

    Raises:
        AuditError: If a score is not finite, shapes differ, or no word or every word was typed.
    """
    matrix = checked_scores(rows, "rows")
    biases = checked_scores(bias, "biases")
    words = checked_coins(typed, biases, "typed")
    if matrix.ndim != 2 or matrix.shape[:1] != biases.shape:
        raise AuditError(f"rows must have shape ({biases.size}, embed), got {matrix.shape}")
    # The median of each column is where words that were not typed went: they are the most.
    distances = np.linalg.norm(matrix - np.median(matrix, axis=0), axis=1)
    both = stats.rankdata(distances) + stats.rankdata(biases)
    return WordLeakage(
        by_row=area_under_curve(distances, words),
        by_bias=area_under_curve(biases, words),
        by_both=area_under_curve(both, words),
        by_frequency=area_under_curve(frequency, words),
    )


def area_under_curve(scores: ArrayLike, positive: ArrayLike) -> float:
    """Return the chance that a positive scores above a negative, ties counting one half.

    Both have shape ``(items,)``. Raises AuditError if a score is not finite, shapes differ, or all
    items are of one kind.
    """
    values: Scores = checked_scores(scores)
    kinds: Coins = checked_coins(positive, values, "positive")
    count = int(np.count_nonzero(kinds))
    others = kinds.size - count
    if not count or not others:
        raise AuditError(
            f"an AUC needs items of both kinds, got {count} positive and {others} negative"
        )
    # Mann and Whitney: the rank sum of the positives less its smallest value.
    ranks = stats.rankdata(values)
    return float((ranks[kinds].sum() - count * (count + 1) / 2) / (count * others))
