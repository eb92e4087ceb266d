"""Count right answers: perplexity, and recall of suggestions or classes.

Counts add up, so a federation merges those of its devices and divides once at the end.

References:
    [Hard] Hard et al., 2018, arXiv:1811.03604: top-1 and top-3 recall.
"""

import math

import msgspec

SUGGESTION_SLOTS = 3


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of right answers on some text, or on some images.

    Attributes:
        token_count: Targets scored, each once: tokens (``<unk>`` and ``<eos>`` included),
            characters, or images.
        log_loss_sum: Sum of their negative log-likelihoods, in nats.
        top1_hits: Targets that were the first suggestion. ``<unk>`` is never suggested, so it is
            never a hit; ``<eos>`` is suggested like a word: the person ends the sentence.
        top3_hits: Targets among the first three suggestions.
        sequence_count: Sequences scored as wholes; 0 for a task that has none.
        exact_matches: Sequences that would be written without a mistake.
    """

    token_count: int = 0
    log_loss_sum: float = 0.0
    top1_hits: int = 0
    top3_hits: int = 0
    sequence_count: int = 0
    exact_matches: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            token_count=self.token_count + other.token_count,
            log_loss_sum=self.log_loss_sum + other.log_loss_sum,
            top1_hits=self.top1_hits + other.top1_hits,
            top3_hits=self.top3_hits + other.top3_hits,
            sequence_count=self.sequence_count + other.sequence_count,
            exact_matches=self.exact_matches + other.exact_matches,
        )

    @property
    def mean_log_loss(self) -> float:
        """Return the mean cross-entropy, nats per target; ``ValueError`` if nothing was scored."""
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
    def accuracy(self) -> float:
        """Return the share of targets that were hit: ``top1_recall`` by its name for classes."""
        return self.top1_recall

    @property
    def top3_recall(self) -> float:
        """Return the share of targets among the first three suggestions."""
        return self.top3_hits / self._checked_count()

    @property
    def exact_match(self) -> float:
        """Return the share of sequences that would be written without a mistake."""
        if self.sequence_count < 1:
            raise ValueError("exact_match needs at least one scored sequence, got 0")
        return self.exact_matches / self.sequence_count

    def _checked_count(self) -> int:
        if self.token_count < 1:
            raise ValueError("a figure needs at least one scored token, got 0")
        return self.token_count
