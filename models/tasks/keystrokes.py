"""Measure how many keys a keyboard with three suggestions saves its user.

Without suggestions a word costs its letters and one space, an elided one such as French ``l'`` no
space. With them, three words are on show before every letter: the best ones that begin with the
letters typed so far. As soon as the right word is among them the user picks it, for one key that
types the rest of the word and the space. So a word picked after j letters costs j + 1 keys, and one
that is never on show costs what it costs without. ``<unk>`` and ``<eos>`` are never suggested; the
end of a sentence costs no key; the context of a word is the text before it as the model reads it,
rare words as ``<unk>``.

References:
    [Trnka] Trnka & McCoy, "Evaluating Word Prediction: Framing Keystroke Savings", ACL 2008: the
        vocabulary's ceiling belongs beside every figure.
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import cache

import msgspec
import torch
from torch import Tensor

from models.networks.registry import WordNetwork
from models.tasks.metrics import SUGGESTION_SLOTS
from models.tasks.scoring import WordScores, chunked_logits, words_ahead
from models.tasks.text_streams import scored_features
from models.text.vocabulary import EOS, UNK, Vocabulary
from models.text.words import UNK_WORD

_LAST_CHARACTER = "\U0010ffff"

Sentences = Sequence[Sequence[str]]


class KeystrokeCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Keys of some text, typed with and without suggestions.

    Attributes:
        keys_without: Letters of every word, and a space behind each.
        keys_with: Keys pressed when a suggestion is taken as soon as it is right.
        keys_at_best: Keys with a model that always suggests the right word: one for each word of
            the vocabulary, and all keys of every other word.
    """

    keys_without: int = 0
    keys_with: int = 0
    keys_at_best: int = 0

    def __add__(self, other: "KeystrokeCounts") -> "KeystrokeCounts":
        return KeystrokeCounts(
            keys_without=self.keys_without + other.keys_without,
            keys_with=self.keys_with + other.keys_with,
            keys_at_best=self.keys_at_best + other.keys_at_best,
        )

    @property
    def savings(self) -> float:
        """Return 1 - keys with / keys without, in [0, ceiling]; refused if no word was typed."""
        return 1 - self.keys_with / self._checked_keys()

    @property
    def ceiling(self) -> float:
        """Return the savings of a model that always suggests the right word it knows."""
        return 1 - self.keys_at_best / self._checked_keys()

    def _checked_keys(self) -> int:
        if self.keys_without < 1:
            raise ValueError("keystroke savings need at least one word, got none")
        return self.keys_without


@torch.no_grad()
def keystroke_savings(
    network: WordNetwork,
    vocabulary: Vocabulary,
    users: Sequence[Sentences],
    *,
    scores: WordScores = chunked_logits,
    batch_size: int = 64,
) -> KeystrokeCounts:
    """Type every word of every user's text once and count the keys.

    A ``<unk>`` in the text itself hides a word of unknown length: it is read and not counted.
    ``users`` are sentences of one person each, in words; ``scores`` ranks the words, by default
    with the network's own output layer. The network is left in evaluation mode.

    Raises:
        ValueError: If the vocabulary and the network differ in size.
    """
    if len(vocabulary) != len(network.output_bias):
        raise ValueError(
            f"vocabulary must have the network's {len(network.output_bias)} words, "
            f"got {len(vocabulary)}"
        )
    network.eval()
    texts = [user for user in users if user]
    streams = [torch.tensor(vocabulary.token_stream(user)) for user in texts]
    words = [word for user in texts for read in vocabulary.read(user) for word in (*read, None)]
    keyboard = _Keyboard(vocabulary)
    counts = KeystrokeCounts()
    if not streams:
        return counts
    for features, places in scored_features(network, streams, batch_size=batch_size):
        typed = [words[place] for place in places.tolist()]
        for chunk, logits in scores(network, features):
            counts += keyboard.type_words(typed[chunk], logits)
    return counts


class _Keyboard:
    """The words in alphabetical order, where those with one prefix stand together."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        known = [row for row in range(len(vocabulary)) if row not in (UNK, EOS)]
        self._rows = torch.tensor(sorted(known, key=lambda row: vocabulary.typed[row]))
        self._sorted = [vocabulary.typed[row] for row in self._rows.tolist()]
        self._prefixes = cache(self._find_prefixes)

    def type_words(self, words: Sequence[str | None], logits: Tensor) -> KeystrokeCounts:
        """Type words, None for the end of a sentence, with scores of shape ``(words, vocab)``."""
        counted = [word for word in words if word is not None and word != UNK_WORD]
        known = [at for at, word in enumerate(words) if self._is_known(word)]
        unknown_keys = sum(len(word) + 1 for word in counted if not self._is_known(word))
        typed = [word for word in counted if self._is_known(word)]
        known_keys = sum(map(self._keys_alone, typed))
        picked_keys = self._keys_until_picked(typed, logits[torch.tensor(known, dtype=torch.int64)])
        return KeystrokeCounts(
            keys_without=known_keys + unknown_keys,
            keys_with=picked_keys + unknown_keys,
            keys_at_best=len(typed) + unknown_keys,
        )

    def _is_known(self, word: str | None) -> bool:
        return word is not None and word != UNK_WORD and word in self._vocabulary

    def _keys_until_picked(self, words: Sequence[str], logits: Tensor) -> int:
        """Return the keys for words of the vocabulary, scores of shape ``(words, vocab)``."""
        if not words:
            return 0
        rows = torch.tensor(self._vocabulary.encode(words), device=logits.device)
        ahead = words_ahead(logits, rows)[:, self._rows.to(logits.device)]
        # before[i, n]: words ahead of the right one among the first n of the alphabet.
        before = torch.nn.functional.pad(ahead.cumsum(1, dtype=torch.int32), (1, 0))
        first, last = self._prefix_table(words)
        ranks = before.gather(1, last.to(logits.device)) - before.gather(1, first.to(logits.device))
        lengths = torch.tensor([len(word) for word in words], device=logits.device)
        letters = torch.arange(ranks.shape[1], device=logits.device)
        shown = (ranks < SUGGESTION_SLOTS) & (letters < lengths.unsqueeze(1))
        # The first letter count at which the word is on show; none: all letters and the space.
        picked = torch.where(shown, letters + 1, torch.iinfo(torch.int64).max).amin(1)
        alone = torch.tensor([self._keys_alone(word) for word in words], device=logits.device)
        return int(torch.minimum(picked, alone).sum())

    def _keys_alone(self, word: str) -> int:
        """Return the keys without suggestions: no space behind an elided word."""
        return len(word) + (word not in self._vocabulary.elided)

    def _prefix_table(self, words: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return where the words with each prefix begin and end, both ``(words, letters)``."""
        ranges = [torch.tensor(self._prefixes(word)) for word in words]
        table = torch.nn.utils.rnn.pad_sequence(ranges, batch_first=True)
        return table[:, :, 0], table[:, :, 1]

    def _find_prefixes(self, word: str) -> list[tuple[int, int]]:
        prefixes = [word[:letters] for letters in range(len(word))]
        return [
            (bisect_left(self._sorted, prefix), bisect_left(self._sorted, prefix + _LAST_CHARACTER))
            for prefix in prefixes
        ]
