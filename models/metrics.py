"""Measure a next-word model: perplexity, recall of suggestions, and keystrokes saved.

Counts add up, so a federation merges those of its devices and divides once at the end.

References:
    [Hard] Hard et al., "Federated Learning for Mobile Keyboard Prediction", 2018,
        arXiv:1811.03604: top-1 and top-3 recall.
    [Trnka] Trnka & McCoy, "Evaluating Word Prediction: Framing Keystroke Savings", ACL 2008: the
        vocabulary's ceiling belongs beside every figure.
"""

import math

import msgspec

SUGGESTION_SLOTS = 3


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Count what a model got right on some text.

    Attributes:
        token_count: Target tokens scored, ``<unk>`` and ``<eos>`` included, each once.
        log_loss_sum: Sum of their negative log-likelihoods, in nats.
        top1_hits: Targets that were the first suggestion. ``<unk>`` is never suggested, so it is
            never a hit; ``<eos>`` is suggested like a word: the person ends the sentence.
        top3_hits: Targets among the first three suggestions.
    """

    token_count: int = 0
    log_loss_sum: float = 0.0
    top1_hits: int = 0
    top3_hits: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            token_count=self.token_count + other.token_count,
            log_loss_sum=self.log_loss_sum + other.log_loss_sum,
            top1_hits=self.top1_hits + other.top1_hits,
            top3_hits=self.top3_hits + other.top3_hits,
        )

    @property
    def mean_log_loss(self) -> float:
        """Return the mean cross-entropy, nats per token.

        Raises:
            ValueError: If no token was scored.
        """
        return self.log_loss_sum / self._checked_count()

    @property
    def perplexity(self) -> float:
        """Return e to the mean cross-entropy; infinity where that is too large for a float."""
        try:
            return math.exp(self.mean_log_loss)
        except OverflowError:
            return math.inf

    @property
    def top1_recall(self) -> float:
        """Return the share of targets that were the first suggestion."""
        return self.top1_hits / self._checked_count()

    @property
    def top3_recall(self) -> float:
        """Return the share of targets among the first three suggestions."""
        return self.top3_hits / self._checked_count()

    def _checked_count(self) -> int:
        if self.token_count < 1:
            raise ValueError("a figure needs at least one scored token, got 0")
        return self.token_count


class KeystrokeCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Count the keys of some text, typed with and without suggestions.

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
        """Return 1 - keys with / keys without, in [0, ceiling].

        Raises:
            ValueError: If no word was typed.
        """
        return 1 - self.keys_with / self._checked_keys()

    @property
    def ceiling(self) -> float:
        """Return the savings of a model that always suggests the right word it knows."""
        return 1 - self.keys_at_best / self._checked_keys()

    def _checked_keys(self) -> int:
        if self.keys_without < 1:
            raise ValueError("keystroke savings need at least one word, got none")
        return self.keys_without
