"""Remember the words that one person has typed lately, to suggest them oftener.

The model's probability p_model is mixed with the word's share of what the person typed:
p = (1 - l) p_model + l p_cache, where l grows with what was typed. Old words fade: each new one
makes all others count a little less. The cache may hold words that the word list lacks, such as
names; these complete what is typed once they were typed twice, since a word typed once may be a
slip. Words typed twice are known as such after their count has made room for others', so that
they are never corrected. A cache is as private as the text, and belongs on the person's own device.

References:
    Kuhn and De Mori, "A Cache-Based Natural Language Model for Speech Recognition", IEEE
        Transactions on Pattern Analysis and Machine Intelligence 12(6), 1990.
"""

from collections.abc import Collection, Iterator

import msgspec

from models.text.letters import is_unparted
from models.text.words import UNK_WORD, split_sentences
from privacy.foundation.strict_json import decode_json

HALF_LIFE_WORDS = 2000
LARGEST_WORDS = 2000
TYPED_TWICE_WORDS = 20_000
"""Words known to have been typed twice: what a person has typed in years; the oldest go first."""
_TYPED_TWICE = 1.5
_LARGEST_STEP = 1e12


class CacheError(ValueError):
    """Raised when a kept cache cannot be read."""


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The words of a cache's bytes: how much each counts, and which were typed twice."""

    weights: dict[str, float]
    typed_twice: tuple[str, ...] = ()


class PersonalCache:
    """A count of one person's words."""

    def __init__(
        self, *, half_life_words: int = HALF_LIFE_WORDS, largest_words: int = LARGEST_WORDS
    ) -> None:
        """Begin with none; ValueError if either number is below 1.

        Args:
            half_life_words: After so many further words one counts half.
            largest_words: Different words kept; the least counted one goes first.
        """
        if min(half_life_words, largest_words) < 1:
            raise ValueError(
                "half_life_words and largest_words must be >= 1, "
                f"got {half_life_words} and {largest_words}"
            )
        self._growth: float = 2 ** (1 / half_life_words)
        self._largest_words = largest_words
        # Instead of making all others less, each new word counts more than the one before.
        self._step = 1.0
        self._total = 0.0
        self._weights: dict[str, float] = {}
        # In the order in which they were typed twice: a set that knows its oldest.
        self._typed_twice: dict[str, None] = {}
        self._changes = 0

    def __len__(self) -> int:
        return len(self._weights)

    @property
    def amount(self) -> float:
        """Return how many words were typed, old ones counting less."""
        return self._total / self._step

    @property
    def changes(self) -> int:
        """Return a number that differs whenever the words do."""
        return self._changes

    def learn(self, text: str, *, never: Collection[str] = ()) -> None:
        """Count the words of a finished text, but none of ``never``, lower-case words.

        Numbers and addresses are no words, and neither are sentences without blanks.
        """
        for sentence in split_sentences(text):
            for word in sentence:
                if word not in never and _is_kept(word):
                    self._count(word)

    def insist(self, word: str, *, never: Collection[str] = ()) -> None:
        """Count a word as typed twice: its person took a correction of it back."""
        for sentence in split_sentences(word):
            for one in sentence:
                if one not in never and _is_kept(one):
                    self._count(one)
                    self._protect(one)

    def forget(self, word: str) -> None:
        """Drop a word, as if it had never been typed."""
        self._total -= self._weights.pop(word.lower(), 0.0)
        self._typed_twice.pop(word.lower(), None)
        self._changes += 1

    def share(self, word: str) -> float:
        """Return p_cache of a word, in [0, 1]."""
        return self._weights.get(word, 0.0) / self._total if self._weights else 0.0

    def words(self) -> Iterator[tuple[str, float]]:
        """Yield each word with its p_cache."""
        for word, weight in self._weights.items():
            yield word, weight / self._total

    def is_settled(self, word: str) -> bool:
        """Return whether a word was typed often and lately enough to be no slip."""
        return self._weights.get(word, 0.0) / self._step >= _TYPED_TWICE

    def was_typed_twice(self, word: str) -> bool:
        """Return whether a word was typed twice, however long ago."""
        return word in self._typed_twice

    def to_bytes(self) -> bytes:
        """Return the cache as JSON bytes, to be kept owner-only."""
        weights = {word: weight / self._step for word, weight in self._weights.items()}
        return msgspec.json.encode(_Kept(weights, tuple(self._typed_twice)))

    @classmethod
    def from_bytes(cls, kept: bytes) -> "PersonalCache":
        """Return the cache that `to_bytes` wrote; CacheError if the bytes are none."""
        try:
            read = decode_json(kept, _Kept)
        except msgspec.DecodeError as error:
            raise CacheError(f"a personal cache cannot be read: {error}") from None
        weights = read.weights
        if not all(0 < weight < _LARGEST_STEP for weight in weights.values()):
            raise CacheError("a personal cache must hold positive counts")
        cache = cls()
        cache._weights = weights
        cache._total = sum(weights.values())
        # Caches of before said no more than how much a word counts.
        settled = [word for word, weight in weights.items() if weight >= _TYPED_TWICE]
        for word in (*settled, *read.typed_twice):
            cache._protect(word)
        return cache

    def _count(self, word: str) -> None:
        self._changes += 1
        self._step *= self._growth
        if word in self._weights:
            self._protect(word)
        self._weights[word] = self._weights.get(word, 0.0) + self._step
        self._total += self._step
        if len(self._weights) > self._largest_words:
            least = min(self._weights, key=self._weights.__getitem__)
            self._total -= self._weights.pop(least)
        if self._step > _LARGEST_STEP:
            self._weights = {one: weight / self._step for one, weight in self._weights.items()}
            self._total = sum(self._weights.values())
            self._step = 1.0

    def _protect(self, word: str) -> None:
        self._typed_twice.pop(word, None)
        self._typed_twice[word] = None
        if len(self._typed_twice) > TYPED_TWICE_WORDS:
            del self._typed_twice[next(iter(self._typed_twice))]


def _is_kept(word: str) -> bool:
    return word != UNK_WORD and not is_unparted(word)
