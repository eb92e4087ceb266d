"""Let a person type with and without their own words beside the model, and count what both save.

The words are those of `export.runtime.personal_cache`, mixed in as the strip mixes them
(`export.runtime.personal_ranking`): first those of the person's older text, then each sentence once
it is typed. They may be words that the list lacks, so more can be saved than the list allows.
Offensive words are not left out, and slips are not mended: keys are counted as
`models.tasks.keystrokes` counts them, and recall as `models.tasks.metrics` does.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from export.runtime.next_word import Reading
from export.runtime.personal_cache import PersonalCache
from export.runtime.personal_ranking import PersonalRanking, Scores
from export.runtime.word_index import WordIndex
from models.networks.registry import WordNetwork
from models.tasks.keystrokes import Sentences
from models.tasks.metrics import SUGGESTION_SLOTS
from models.tasks.text_streams import scored_features
from models.text.vocabulary import Vocabulary
from models.text.words import UNK_WORD

_SIDE_BY_SIDE = 64
_BLOCK_TOKENS = 256


class Typed(msgspec.Struct, frozen=True, kw_only=True):
    """What a person typed, and how often the strip had it.

    Attributes:
        words: Typed words, those of no list among them.
        top1_hits: Words that were the first suggestion before a letter was typed.
        top3_hits: Words among the first three.
        keys_without: Letters of every word whose letters are known, and a space behind each.
        keys_with: Keys pressed when a suggestion is taken as soon as it is right.
    """

    words: int = 0
    top1_hits: int = 0
    top3_hits: int = 0
    keys_without: int = 0
    keys_with: int = 0

    def __add__(self, other: "Typed") -> "Typed":
        return Typed(
            **{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__}
        )

    @property
    def savings(self) -> float:
        """Return the share of keys that are saved; 0 where no key was counted."""
        return 1 - self.keys_with / self.keys_without if self.keys_without else 0.0


class BothWays(NamedTuple):
    """One text, typed with the model alone and with the person's own words beside it."""

    alone: Typed
    with_own_words: Typed


@torch.no_grad()
def type_both_ways(
    networks: Sequence[WordNetwork],
    vocabulary: Vocabulary,
    index: WordIndex,
    *,
    before: Sentences,
    typed: Sentences,
) -> list[BothWays]:
    """Type a person's text in order, with each of several models.

    The networks are left in evaluation mode.

    Args:
        networks: Models of the same words.
        index: The vocabulary's, which many people share.
        before: What the person typed before, oldest first.
        typed: What is typed now; it is not empty.

    Raises:
        ValueError: If the vocabulary and a network differ in size.
    """
    stream = torch.tensor(vocabulary.token_stream(typed))
    models = [_Model(network, vocabulary, stream) for network in networks]
    cache = PersonalCache()
    ranking = PersonalRanking(vocabulary, index, cache=cache)
    for sentence in vocabulary.read(before):
        cache.learn(_text(sentence))
    counted = [BothWays(Typed(), Typed()) for _ in models]
    place = 0
    # As the list reads them, word for word in the stream's places.
    for sentence in vocabulary.read(typed):
        for number, model in enumerate(models):
            alone, own = counted[number]
            rows = model.distributions(place, len(sentence))
            for word, distribution in zip(sentence, rows, strict=True):
                alone += _typed(word, Scores(distribution), vocabulary, index)
                own += _typed(word, ranking.scores(_reading(distribution)), vocabulary, index)
            counted[number] = BothWays(alone, own)
        cache.learn(_text(sentence))
        place += len(sentence) + 1  # The end of the sentence is nobody's key.
    return counted


class _Model:
    """What one network says before each word of a text."""

    def __init__(self, network: WordNetwork, vocabulary: Vocabulary, stream: torch.Tensor) -> None:
        if len(vocabulary) != len(network.output_bias):
            raise ValueError(
                f"vocabulary must have the network's {len(network.output_bias)} words, "
                f"got {len(vocabulary)}"
            )
        self._features = _features(network.eval(), stream)
        self._weight = network.output_weight.cpu().t()
        self._bias = network.output_bias.cpu()
        self._first = 0
        self._block: NDArray[np.float32] = np.zeros((0, len(vocabulary)), dtype=np.float32)

    def distributions(self, place: int, count: int) -> NDArray[np.float32]:
        """Return log-probabilities before so many words from a place on, ``(count, vocab)``."""
        if place + count > self._first + len(self._block):
            # Many places at a time: the weights are read once for all of them.
            features = self._features[place : place + max(count, _BLOCK_TOKENS)]
            logits = torch.addmm(self._bias, features, self._weight)
            self._first, self._block = place, logits.log_softmax(1).numpy()
        return self._block[place - self._first :][:count]


def _features(network: WordNetwork, stream: torch.Tensor) -> torch.Tensor:
    """Return the features before each token, in the order of the text."""
    width = network.output_weight.shape[1]
    ordered = torch.empty(len(stream), width)
    for features, places in scored_features(network, [stream], batch_size=_SIDE_BY_SIDE):
        ordered[places] = features.cpu()
    return ordered


def _reading(distribution: NDArray[np.float32]) -> Reading:
    nothing = np.zeros(0, dtype=np.int64)
    return Reading("", False, ((),), nothing, distribution)


def _text(sentence: Sequence[str]) -> str:
    return " ".join(word for word in sentence if word != UNK_WORD)


def _typed(word: str, scores: Scores, vocabulary: Vocabulary, index: WordIndex) -> Typed:
    """Return the count of one word."""
    if word == UNK_WORD:  # It hides a word of unknown length.
        return Typed(words=1)
    rank = _rank(word, 0, scores, vocabulary, index)
    picked, later = 0, rank
    while later >= SUGGESTION_SLOTS and picked < len(word):
        picked += 1
        # A whole word is typed by the space behind it, whatever is on show.
        later = _rank(word, picked, scores, vocabulary, index) if picked < len(word) else later
    return Typed(
        words=1,
        top1_hits=int(rank == 0),
        top3_hits=int(rank < SUGGESTION_SLOTS),
        keys_without=len(word) + 1,
        keys_with=picked + 1,
    )


def _rank(
    word: str, letters: int, scores: Scores, vocabulary: Vocabulary, index: WordIndex
) -> float:
    """Return how many words stand before this one once so many letters are typed."""
    begun = word[:letters]
    rows = index.rows_that_begin(begun)
    if word in vocabulary:
        row = vocabulary.encode([word])[0]
        score = scores.rows[row]
        listed = scores.rows[rows]
        ahead = int((listed > score).sum() + ((listed == score) & (rows < row)).sum())
        return ahead + _own_ahead(begun, scores.own.shares, float(np.exp(np.float64(score))))
    if word not in scores.own.shares:
        return float("inf")
    own = scores.own.shares[word]
    # Words of the list stand before equally likely ones of the person's own.
    ahead = int((np.exp(scores.rows[rows].astype(np.float64)) >= own).sum())
    return ahead + _own_ahead(begun, scores.own.shares, own)


def _own_ahead(begun: str, own: Mapping[str, float], probability: float) -> int:
    return sum(
        1
        for word, share in own.items()
        if share > probability and word.startswith(begun) and word != begun
    )
