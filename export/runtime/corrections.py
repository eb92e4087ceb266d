"""Mend slips: words that may be meant by what is typed, beside those that begin so.

A word w is worth log p(w | text before it) less the cost of the slips between it and the letters
(`export.runtime.slips`), and less so much if its end is still to come: a slip left standing costs a
person more keys than a word that is completed one letter later. What is typed is worth as much
itself: by its own probability if the word is known, else by that of an unknown word of its length.
A blank takes the mended word only if that is the likeliest of all and clearly likelier than what is
typed; never a blocked one, and never instead of a word that the person insists on. Two words
without their blank are offered and left to a tap, and so is a word that the person typed once, as
it may have been a slip. ``corrections.js`` does the same in the page.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from export.runtime.next_word import SLOTS, Reading, Suggestion
from export.runtime.personal_ranking import PersonalRanking, Scores
from export.runtime.rare_words import rare_words
from export.runtime.slips import BLANK, DROPPED, MARK, MOST, Layout
from export.runtime.word_tree import Reached, WordTree
from models.text.languages import primary
from models.text.vocabulary import UNK, Vocabulary

# Chosen by ``benchmarks/typos.py`` on text messages; in nats. An unknown word costs so little that
# a correction needs no more than to be likelier.
UNFINISHED = 3.5
UNKNOWN = 2.0
LETTER = 1.5
KNOWN_MARGIN = 4.0
OFFERED = SLOTS + 1  # one of them may be what is typed, which a strip leaves out
_LONGEST = 24
_SHORTEST_PART = 2
_SHORTEST_BEGUN = 3


@dataclass(frozen=True)
class Offer:
    """Words for a strip, likeliest first; ``is_mended``: a blank takes the first one."""

    words: list[str]
    is_mended: bool


@dataclass(frozen=True)
class _Meant:
    """What words are worth if they are meant, in nats.

    Attributes:
        whole: Those typed to the end, which a blank may take.
        other: Those whose end is still to come, pairs, and words that the person typed once.
    """

    whole: dict[str, float]
    other: dict[str, float]


class Corrections:
    """The words meant by slipped letters; safe to share between threads."""

    def __init__(self, vocabulary: Vocabulary, *, languages: Sequence[str] = ()) -> None:
        """Take slips for those on the keys of a language; ``languages`` are BCP 47 tags."""
        self._vocabulary = vocabulary
        self._layout = Layout(languages)
        self._rare = [
            rare_words(name, vocabulary) for name in dict.fromkeys(map(primary, languages))
        ]
        # By Zipf's law, in a list by frequency: -log p of the word at row r is log(r - 1) and this.
        self._zipf = math.log(math.log(len(vocabulary)) + 0.58)

    def offer(
        self,
        completions: Sequence[Suggestion],
        reading: Reading,
        typed: str,
        *,
        ranking: PersonalRanking,
        kept: Collection[str] = (),
    ) -> Offer:
        """Return completions and mended words together, at most four, what is typed among them.

        Args:
            completions: Words that begin as typed, likeliest first.
            reading: The end of the text.
            typed: The word that is begun, as it was typed.
            ranking: The person's ranking of that list, which says what may not be suggested.
            kept: Lower-case words that stay as they are typed.
        """
        if not 0 < len(reading.begun) <= _LONGEST:
            return Offer([one.word for one in completions[:OFFERED]], is_mended=False)
        scores = ranking.scores(reading)
        meant = self._meant(reading.begun, scores, ranking)
        worth = {one.word: _log(one.probability) - UNFINISHED for one in completions}
        for word, value in (*meant.whole.items(), *meant.other.items()):
            worth[word] = max(value, worth.get(word, -math.inf))
        # Sorting is stable: completions come first among equals.
        words = sorted(worth, key=lambda word: -worth[word])[:OFFERED]
        is_mended = (
            bool(words)
            and words[0] in meant.whole
            and _may_mend(reading, typed, words[0], ranking, kept)
            and self._is_clear(reading.begun, meant.whole[words[0]], scores, ranking)
        )
        return Offer(words, is_mended)

    def _meant(self, begun: str, scores: Scores, ranking: PersonalRanking) -> _Meant:
        meant = _Meant({}, {})
        index = ranking.index
        allowed = scores.rows.astype(np.float64)
        allowed[ranking.never_rows] = -math.inf
        self._add(meant, begun, index.tree, allowed[index.rows])
        for rare in self._rare:
            worth = float(scores.rows[UNK]) + rare.worth(ranking.blocked)
            self._add(meant, begun, rare.tree, worth)
        self._add(meant, begun, scores.own.tree, scores.own.worth)
        once = _Meant({}, {})
        self._add(once, begun, scores.once.tree, scores.once.worth)
        for word, value in once.whole.items():
            _keep_best(meant.other, word, value)
        for word, value in self._parted(begun, allowed):
            meant.other[word] = value
        return meant

    def _add(self, meant: _Meant, begun: str, tree: WordTree, worth: NDArray[np.float64]) -> None:
        """Add the words of a tree; ``worth`` of each, in the tree's order, shape ``(words,)``."""

        def keep(kept: dict[str, float], place: int, cost: float) -> None:
            if tree.words[place] != begun:
                _keep_best(kept, tree.shown[place], float(worth[place]) - cost)

        for found in tree.reach(begun, self._layout):
            for place, cost in _whole(tree, found):
                keep(meant.whole, place, cost)
            if not found.cost and tree.ends(found.node):  # Typed to its end, in whatever spelling.
                spelt = found.node.first
                _keep_best(meant.other, tree.shown[spelt], float(worth[spelt]))
            first = found.node.first + tree.ends(found.node)
            if first < found.node.last and (not found.cost or len(begun) >= _SHORTEST_BEGUN):
                place = first + int(worth[first : found.node.last].argmax())
                keep(meant.other, place, found.cost + UNFINISHED)

    def _parted(self, begun: str, allowed: NDArray[np.float64]) -> Iterator[tuple[str, float]]:
        """Yield two words of the list where what stands between them is missing.

        That is a blank, or the apostrophe of an elided word.
        """
        if begun in self._vocabulary:
            return
        for cut in range(1, len(begun)):
            first, second = begun[:cut], begun[cut:]
            if f"{first}'" in self._vocabulary.elided:
                yield from self._pair(f"{first}'", second, allowed, cost=MARK)
            if min(len(first), len(second)) >= _SHORTEST_PART:
                yield from self._pair(first, second, allowed, cost=BLANK)

    def _pair(
        self, first: str, second: str, allowed: NDArray[np.float64], *, cost: float
    ) -> Iterator[tuple[str, float]]:
        vocabulary = self._vocabulary
        row, next_row = vocabulary.encode((first, second))
        if min(row, next_row) > UNK and allowed[next_row] > -math.inf:
            value = float(allowed[row]) - cost - math.log(next_row - 1) - self._zipf
            if value > -math.inf:
                blank = "" if first in vocabulary.elided else " "
                yield f"{vocabulary.words[row]}{blank}{vocabulary.words[next_row]}", value

    def _is_clear(self, begun: str, worth: float, scores: Scores, ranking: PersonalRanking) -> bool:
        """Return whether a word of such worth is clearly likelier than what is typed."""
        (row,) = self._vocabulary.encode([begun])
        if row != UNK:
            verbatim = float(scores.rows[row]) + KNOWN_MARGIN
        else:
            rare = (own for one in self._rare if (own := one.worth_of(begun)) is not None)
            known = [own + KNOWN_MARGIN for own in rare]
            verbatim = float(scores.rows[UNK]) + max([-UNKNOWN - LETTER * len(begun), *known])
        return worth > max(verbatim, _log(ranking.own_share(begun)))


def _may_mend(
    reading: Reading, typed: str, meant: str, ranking: PersonalRanking, kept: Collection[str]
) -> bool:
    """Return whether the person did not write the word so on purpose.

    A capital inside a sentence is on purpose, unless what is meant has one, as a German noun.
    """
    begun = reading.begun
    expects_large = reading.begins_sentence or meant[:1].isupper()
    is_written_large = typed != typed[:1] + typed[1:].lower() or (
        typed[:1] != typed[:1].lower() and not expects_large
    )
    return not (
        is_written_large
        or begun in kept
        or begun in ranking.blocked
        or ranking.cache.was_typed_twice(begun)
        or any(begun in sentence for sentence in reading.sentences)
    )


def _whole(tree: WordTree, found: Reached) -> Iterator[tuple[int, float]]:
    """Yield words typed to their end with a slip: their places, and what the slips cost."""
    if found.cost and tree.ends(found.node):
        yield found.node.first, found.cost
    if found.left and found.cost + DROPPED <= MOST:
        for child in tree.nexts(found.node).values():
            if tree.ends(child):
                yield child.first, found.cost + DROPPED


def _keep_best(kept: dict[str, float], word: str, value: float) -> None:
    if value > kept.get(word, -math.inf):
        kept[word] = value


def _log(probability: float) -> float:
    return math.log(probability) if probability > 0 else -math.inf
