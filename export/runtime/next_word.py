"""Suggest words to a person who types: the next one, or the end of the one begun.

No torch here. The state of the text so far is carried: a new word costs one step of the graph,
and the letters of a word cost none, since they only narrow what was predicted before it.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from export.runtime.word_graph import Prediction, State
from export.runtime.word_index import WordIndex
from models.text.letters import MARKS, is_emoji, is_unparted
from models.text.vocabulary import EOS, NEVER_SUGGESTED, Vocabulary
from models.text.words import UNK_WORD, compose, split_sentences

SLOTS = 3

# A letter put behind the text shows how the text's own rules would read what comes next.
_PROBE = "x"
# At least one block and at most two are read: what lies further back says little of the next
# word, and a pasted megabyte must not stop the keyboard. A window that moves by whole blocks
# leaves the carried state valid from letter to letter.
_BLOCK_CHARACTERS = 1024
# What has no white space for so long is no word, or its writing puts none between words.
_LONGEST_WORD = 256
_WHITE_SPACE = re.compile(r"\s")
_ENDS_IN_WORD = re.compile(rf"(?:[^\W_]|[{MARKS}])['’]?\Z")


@dataclass(frozen=True)
class Suggestion:
    """One suggestion: a word as its list writes it, and its probability in [0, 1] as the next."""

    word: str
    probability: float


class WordModel(Protocol):
    """A model of words for one person: a graph, or a graph with that person's own tensors."""

    @property
    def vocabulary_size(self) -> int:
        """Return how many words it ranks."""

    @property
    def context_size(self) -> int | None:
        """Return how many tokens it can read of one text; None for any number."""

    def fresh_state(self, batch_size: int = 1) -> State:
        """Return the state of ``batch_size`` texts that have not begun."""

    def step(self, tokens: NDArray[np.int64], state: State, *, k: int) -> Prediction:
        """Read tokens, int64, shape ``(batch, time)``, and predict the word after the last one."""


@dataclass(frozen=True)
class Reading:
    """The end of a text, and what the model expects there.

    Attributes:
        begun: The word that is begun, lower-case; empty if the next one is expected.
        begins_sentence: Whether that word is the first of its sentence.
        sentences: The finished words before it, sentence by sentence.
        ranked: The likeliest rows, likeliest first, whatever is begun.
        distribution: Log-probabilities of all words in nats, float32, shape ``(vocab,)``.
        head: Elided words in front of the begun one, as French ``l'``, which it is written to; the
            last of ``sentences`` has them too.
    """

    begun: str
    begins_sentence: bool
    sentences: Sequence[Sequence[str]]
    ranked: NDArray[np.int64]
    distribution: NDArray[np.float32]
    head: str = ""


class NextWords:
    """One person's text, followed, and its suggestions; one object a text, many on one graph."""

    def __init__(
        self,
        graph: WordModel,
        vocabulary: Vocabulary,
        *,
        slot_count: int = SLOTS,
        index: WordIndex | None = None,
    ) -> None:
        """Begin with an empty text.

        Args:
            graph: The loaded graph; may be shared.
            slot_count: Most suggestions at a time.
            index: The index of the vocabulary, if many texts share one; made if absent.

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
        self._index = WordIndex(vocabulary) if index is None else index
        self._ranked = min(slot_count + len(NEVER_SUGGESTED), len(vocabulary))
        self._read: list[int] = []
        self._prediction: Prediction | None = None

    def suggest(self, text: str) -> list[Suggestion]:
        """Return the likeliest words for the end of a text, likeliest first.

        If the text ends in a word that is begun, they are the words that begin so, which may be
        none; else
        the words that may follow, without ``<unk>`` and ``<eos>``. The longer ``text``, everything
        typed so
        far, agrees with that of the call before, the less is to be computed.
        """
        reading = self.read(text)
        if reading is None:
            return []
        rows = reading.ranked
        if reading.begun:
            rows = self._index.likeliest(
                reading.begun, reading.distribution, count=self._slot_count
            )
        return written_out(self._suggestions(rows, reading.distribution), reading)

    def read(self, text: str) -> "Reading | None":
        """Read a text and return what the model expects at its end.

        None if a number or an address is begun, or writing without blanks: nothing that a word
        could complete.
        """
        sentences, begun = split_at_cursor(text)
        if begun == UNK_WORD or is_unparted(begun):
            return None
        begins_sentence = all(map(is_emoji, sentences[-1]))
        head, begun = self._without_elided(begun, sentences[-1])
        prediction = self._predict(self._tokens(sentences))
        ranked, distribution = prediction.words[0], prediction.distribution[0]
        return Reading(begun, begins_sentence, sentences, ranked, distribution, head)

    def _without_elided(self, begun: str, sentence: list[str]) -> tuple[str, str]:
        """Move the elided words in front of a begun one to its sentence; return them and it."""
        heads = ""
        while (parts := self._vocabulary.elision(begun))[0]:
            head, begun = parts
            sentence.append(head)
            heads += head
        return heads, begun

    def _tokens(self, sentences: Sequence[Sequence[str]]) -> list[int]:
        """Return what the model reads: as in training, ``<eos>`` before and between sentences."""
        *finished, current = sentences
        tokens: list[int] = []
        for words in (*self._vocabulary.read(finished), self._vocabulary.parts(current)):
            tokens += [EOS, *self._vocabulary.encode(words)]
        return tokens

    def _predict(self, tokens: list[int]) -> Prediction:
        """Return the prediction after the tokens, reading only those not read before."""
        tokens = in_context(tokens, self._graph.context_size)
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

    def _suggestions(
        self, rows: Iterable[np.int64], distribution: NDArray[np.float32]
    ) -> list[Suggestion]:
        allowed = [int(row) for row in rows if row not in NEVER_SUGGESTED]
        return [
            Suggestion(self._vocabulary.words[row], math.exp(float(distribution[row])))
            for row in allowed[: self._slot_count]
        ]


def written_out(words: Iterable[Suggestion], reading: Reading) -> list[Suggestion]:
    """Return suggestions in the place of all that is begun: behind what is elided before them."""
    return [replace(one, word=reading.head + one.word) for one in words]


def in_context(tokens: list[int], context_size: int | None) -> list[int]:
    """Return the end of a text that a model can read: all of it, or at least half a context.

    It begins at a multiple of half a context, so that what was carried stays valid for as many
    words, and then so much is read again.
    """
    if context_size is None or len(tokens) <= context_size:
        return tokens
    half = max(1, context_size // 2)
    return tokens[-(-(len(tokens) - context_size) // half) * half :]


def split_at_cursor(text: str) -> tuple[list[list[str]], str]:
    """Return the finished part of a text as sentences of words, and the word that is begun.

    Words are read as in training (`models.text.words`). The last sentence is the one being typed;
    it is
    empty if the next word begins a sentence. A word is begun if the text ends in a letter or digit,
    or
    in an apostrophe behind one. Only the end of a long text is read.
    """
    recent = compose(_recent(text))
    is_typing = _ENDS_IN_WORD.search(recent) is not None
    sentences = split_sentences(recent + ("" if is_typing else " ") + _PROBE)
    probed = sentences[-1].pop()
    return sentences, probed if probed == UNK_WORD else probed.removesuffix(_PROBE)


def _recent(text: str) -> str:
    """Return the end of a text: all of it, or its last blocks without the word that they cut."""
    start = max(0, len(text) // _BLOCK_CHARACTERS - 1) * _BLOCK_CHARACTERS
    if not start:
        return text
    space = _WHITE_SPACE.search(text, start, start + _LONGEST_WORD)
    return text[start if space is None else space.end() :]
