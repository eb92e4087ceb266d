"""Measure a keyboard on held-out text, without torch: how often the next word is on show.

A hit is a word of the text among the first three (or first) shown before its first letter is typed.
Words outside the list are misses, and ends of sentences do not count, as in `models.tasks.metrics`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from export.runtime.next_word import SLOTS, WordModel, in_context
from export.serve.folder.folder import ServingError
from models.text.vocabulary import EOS, NEVER_SUGGESTED, UNK, Vocabulary
from models.text.words import split_sentences
from privacy.foundation.bounded_files import read_bounded

# A text is read anew after so many sentences, so that a long file is many short texts.
_SENTENCES_OF_A_TEXT = 20
_FEWEST_WORDS = 100
_LARGEST_TEXT_BYTES = 64 << 20


@dataclass(frozen=True)
class Recall:
    """Hits on one text: words that stood first, and among the first three."""

    words: int
    top1_hits: int
    top3_hits: int

    @property
    def top1_recall(self) -> float:
        """Return the share of words that stood first, in [0, 1]."""
        return self.top1_hits / self.words

    @property
    def top3_recall(self) -> float:
        """Return the share of words among the first three, in [0, 1]."""
        return self.top3_hits / self.words


def read_held_out(path: Path) -> list[list[str]]:
    """Return the sentences of a text file; ServingError if it has too few words to judge by."""
    try:
        sentences = split_sentences(read_bounded(path, _LARGEST_TEXT_BYTES).decode())
    except UnicodeDecodeError as error:
        raise ServingError(f"{path} must be UTF-8 text: {error.reason}") from None
    except OSError as error:
        raise ServingError(f"{path} cannot be read: {error.strerror}") from None
    words = sum(map(len, sentences))
    if words < _FEWEST_WORDS:
        raise ServingError(f"{path} must have at least {_FEWEST_WORDS} words, got {words}")
    return sentences


def measure_recall(
    model: WordModel,
    vocabulary: Vocabulary,
    sentences: list[list[str]],
    *,
    follow: Callable[[Sequence[int]], Iterable[int]] = iter,
) -> Recall:
    """Read the sentences word by word and count hits.

    ``follow`` shows how far it is: it is given where each text begins, and yields them.
    """
    words = top1 = top3 = 0
    for start in follow(range(0, len(sentences), _SENTENCES_OF_A_TEXT)):
        text = _Text(model)
        for sentence in sentences[start : start + _SENTENCES_OF_A_TEXT]:
            shown = text.shown_after(EOS)
            for row in vocabulary.encode(vocabulary.parts(sentence)):
                words += 1
                top1 += row != UNK and row in shown[:1]
                top3 += row != UNK and row in shown
                shown = text.shown_after(row)
    return Recall(words, top1, top3)


class _Text:
    """One text, read word by word."""

    def __init__(self, model: WordModel) -> None:
        self._model = model
        self._k = min(SLOTS + len(NEVER_SUGGESTED), model.vocabulary_size)
        self._state = model.fresh_state()
        self._read: list[int] = []

    def shown_after(self, row: int) -> list[int]:
        """Read one more word and return the rows that would be on show, likeliest first."""
        self._read.append(row)
        unread = [row]
        kept = in_context(self._read, self._model.context_size)
        if len(kept) < len(self._read):
            self._state, self._read, unread = self._model.fresh_state(), kept, kept
        found = self._model.step(np.array([unread]), self._state, k=self._k)
        self._state = found.state
        return [int(word) for word in found.words[0] if word not in NEVER_SUGGESTED][:SLOTS]
