"""Suggest words to a person who types: the next one, or the end of the one begun.

No torch here. The state of the text so far is carried: a new word costs one step of the graph,
and the letters of a word cost none, since they only narrow what was predicted before it.
"""

import math
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from export.runtime import NextWordGraph, Prediction
from models.text import UNK_WORD, split_sentences
from models.vocabulary import EOS, UNK, Vocabulary

SLOTS = 3

_NEVER_SUGGESTED = (UNK, EOS)
_LAST_CHARACTER = "\U0010ffff"
# A letter put behind the text shows how the text's own rules would read what comes next.
_PROBE = "x"
# At least one block and at most two are read: what lies further back says little of the next
# word, and a pasted megabyte must not stop the keyboard. A window that moves by whole blocks
# leaves the carried state valid from letter to letter.
_BLOCK_CHARACTERS = 1024
_ENDS_IN_WORD = re.compile(r"[^\W_]['’]?\Z")


@dataclass(frozen=True)
class Suggestion:
    """Hold one suggestion.

    Attributes:
        word: The word, lower-case as in the word list.
        probability: What the model gives it as the next word, in [0, 1].
    """

    word: str
    probability: float


class NextWords:
    """Follow one person's text and suggest words; one object a text, many on one graph."""

    def __init__(
        self, graph: NextWordGraph, vocabulary: Vocabulary, *, slot_count: int = SLOTS
    ) -> None:
        """Begin with an empty text.

        Args:
            graph: The loaded graph; may be shared.
            vocabulary: The words of its rows.
            slot_count: Most suggestions at a time, at least 1.

        Raises:
            ValueError: If the slots are fewer than 1, or graph and vocabulary differ in size.
        """
        if slot_count < 1:
            raise ValueError(f"slot_count must be >= 1, got {slot_count}")
        if len(vocabulary) != graph.vocabulary_size:
            raise ValueError(
                f"vocabulary must have the graph's {graph.vocabulary_size} words, "
                f"got {len(vocabulary)}"
            )
        self._graph = graph
        self._vocabulary = vocabulary
        self._slot_count = slot_count
        self._ranked = min(slot_count + len(_NEVER_SUGGESTED), len(vocabulary))
        rows = [row for row in range(len(vocabulary)) if row not in _NEVER_SUGGESTED]
        rows.sort(key=lambda row: vocabulary.words[row])
        self._sorted_rows = np.array(rows, dtype=np.int64)
        self._sorted_words = [vocabulary.words[row] for row in rows]
        self._read: list[int] = []
        self._prediction: Prediction | None = None

    def suggest(self, text: str) -> list[Suggestion]:
        """Return the likeliest words for the end of a text, likeliest first.

        If the text ends in a word that is begun, they are the words that begin so, which may be
        none; else they are the words that may follow. ``<unk>`` and ``<eos>`` are never among
        them.

        Args:
            text: Everything typed so far; the longer it agrees with the text of the call before,
                the less is to be computed.
        """
        sentences, begun = split_at_cursor(text)
        if begun == UNK_WORD:  # a number or an address: nothing that a word could complete
            return []
        prediction = self._predict(self._tokens(sentences))
        distribution = prediction.distribution[0]
        rows = self._completions(begun, distribution) if begun else prediction.words[0]
        return self._suggestions(rows, distribution)

    def _tokens(self, sentences: Sequence[Sequence[str]]) -> list[int]:
        """Return what the model reads: as in training, ``<eos>`` before and between sentences."""
        tokens: list[int] = []
        for sentence in sentences:
            tokens += [EOS, *self._vocabulary.encode(sentence)]
        return tokens

    def _predict(self, tokens: list[int]) -> Prediction:
        """Return the prediction after the tokens, reading only those not read before."""
        known = len(self._read)
        if self._prediction is None or tokens[:known] != self._read:
            known, state = 0, self._graph.fresh_state()
        else:
            state = self._prediction.state
        if known < len(tokens) or self._prediction is None:
            unread = np.array([tokens[known:]], dtype=np.int64)
            self._prediction = self._graph.step(unread, state, k=self._ranked)
            self._read = tokens
        return self._prediction

    def _completions(self, begun: str, distribution: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the likeliest rows whose words begin so, likeliest first."""
        first = bisect_left(self._sorted_words, begun)
        last = bisect_left(self._sorted_words, begun + _LAST_CHARACTER, first)
        rows = self._sorted_rows[first:last]
        scores = distribution[rows]
        if len(rows) > self._slot_count:
            best = np.argpartition(scores, -self._slot_count)[-self._slot_count :]
            rows, scores = rows[best], scores[best]
        return rows[np.argsort(-scores, kind="stable")]

    def _suggestions(
        self, rows: Iterable[np.int64], distribution: NDArray[np.float32]
    ) -> list[Suggestion]:
        allowed = [int(row) for row in rows if row not in _NEVER_SUGGESTED]
        return [
            Suggestion(self._vocabulary.words[row], math.exp(float(distribution[row])))
            for row in allowed[: self._slot_count]
        ]


def split_at_cursor(text: str) -> tuple[list[list[str]], str]:
    """Return the finished part of a text as sentences of words, and the word that is begun.

    Words are read as in training (`models.text`). The last sentence is the one being typed; it is
    empty where the next word begins a sentence. A word is begun if the text ends in a letter or
    digit, or in an apostrophe behind one. Of a long text only the end is read.
    """
    recent = _recent(unicodedata.normalize("NFC", text))
    is_typing = _ENDS_IN_WORD.search(recent) is not None
    sentences = split_sentences(recent + ("" if is_typing else " ") + _PROBE)
    probed = sentences[-1].pop()
    return sentences, probed if probed == UNK_WORD else probed.removesuffix(_PROBE)


def _recent(text: str) -> str:
    """Return the end of a text: all of it, or from a word in its last but one block on."""
    start = max(0, len(text) // _BLOCK_CHARACTERS - 1) * _BLOCK_CHARACTERS
    if not start:
        return text
    _, _, recent = text[start:].partition(" ")
    return recent
