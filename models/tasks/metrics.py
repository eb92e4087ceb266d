"""Count right answers: perplexity, and recall of suggestions or classes.

Counts add up, so a federation merges those of its devices and divides once at the end.

Perplexity and recall of words are over different targets. Perplexity is over every token, ``<eos>``
and ``<unk>`` included, as in the papers that it is compared with. Recall is what a person sees: it
is over typed words, ranked as the strip ranks them. Neither ``<eos>`` nor ``<unk>`` is ever
suggested; the end of a sentence is no target; a word that the list does not have is a target, and
missed. Any other task has one kind of target for both.

References:
    [Hard] Hard et al., 2018, arXiv:1811.03604: top-1 and top-3 recall.
"""

import math

import msgspec

SUGGESTION_SLOTS = 3
BESIDE_RECALL = ("unknown_words", "listed_top1_recall", "listed_top3_recall")
"""Figures that stand beside recall wherever it is over typed words alone: recall without them was
counted by a version that took ``<eos>`` for a word."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of right answers on some text, or on some images.

    Attributes:
        token_count: Targets scored, each once: tokens (``<unk>`` and ``<eos>`` included),
            characters, or images.
        log_loss_sum: Sum of their negative log-likelihoods, in nats.
        top1_hits: Targets that were the first suggestion.
        top3_hits: Targets among the first three suggestions.
        sequence_count: Sequences scored as wholes; 0 for a task that has none.
        exact_matches: Sequences that would be written without a mistake.
        end_count: Targets that nobody types, the ends of sentences: never hits, and not among
            those that hits are a share of. 0 for a task without words, and in counts of words that
            a version wrote which took ``<eos>`` for a word.
        unknown_count: Typed words that the list does not have: never hits; 0 like ``end_count``.
    """

    token_count: int = 0
    log_loss_sum: float = 0.0
    top1_hits: int = 0
    top3_hits: int = 0
    sequence_count: int = 0
    exact_matches: int = 0
    end_count: int = 0
    unknown_count: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            token_count=self.token_count + other.token_count,
            log_loss_sum=self.log_loss_sum + other.log_loss_sum,
            top1_hits=self.top1_hits + other.top1_hits,
            top3_hits=self.top3_hits + other.top3_hits,
            sequence_count=self.sequence_count + other.sequence_count,
            exact_matches=self.exact_matches + other.exact_matches,
            end_count=self.end_count + other.end_count,
            unknown_count=self.unknown_count + other.unknown_count,
        )

    @property
    def word_count(self) -> int:
        """Return the targets that recall is over: typed words, or all of a task without words."""
        return self.token_count - self.end_count

    @property
    def mean_log_loss(self) -> float:
        """Return the mean cross-entropy, nats per target; ``ValueError`` if nothing was scored."""
        return self.log_loss_sum / self._checked_count()

    @property
    def perplexity(self) -> float:
        """Return e to the mean cross-entropy over all targets, ``<eos>`` and ``<unk>`` included.

        Infinity where that is too large for a float.
        """
        try:
            return math.exp(self.mean_log_loss)
        except OverflowError:
            return math.inf

    @property
    def top1_recall(self) -> float:
        """Return the share of typed words, or classes, that were the first suggestion."""
        return self.top1_hits / self._checked_words()

    @property
    def accuracy(self) -> float:
        """Return ``top1_recall`` by its name for classes."""
        return self.top1_recall

    @property
    def top3_recall(self) -> float:
        """Return the share of typed words, or classes, among the first three suggestions."""
        return self.top3_hits / self._checked_words()

    @property
    def unknown_words(self) -> float:
        """Return the share of typed words that the list does not have."""
        return self.unknown_count / self._checked_words()

    @property
    def exact_match(self) -> float:
        """Return the share of sequences that would be written without a mistake."""
        if self.sequence_count < 1:
            raise ValueError("exact_match needs at least one scored sequence, got 0")
        return self.exact_matches / self.sequence_count

    def figures(self, *, of_words: bool) -> dict[str, float]:
        """Return perplexity and recall by name, without those that nothing was counted for.

        ``of_words`` adds what belongs beside the recall of words: the share that the list does not
        have, and the recall of those that it has.
        """
        found: dict[str, float] = {}
        if self.token_count:
            found["perplexity"] = self.perplexity
        if self.word_count:
            found |= {"top1_recall": self.top1_recall, "top3_recall": self.top3_recall}
        if of_words and self.word_count:
            listed = self.word_count - self.unknown_count
            shares = (self.top1_hits / listed, self.top3_hits / listed) if listed else ()
            found |= dict(zip(BESIDE_RECALL, (self.unknown_words, *shares), strict=False))
        return found

    def _checked_count(self) -> int:
        if self.token_count < 1:
            raise ValueError("a figure needs at least one scored token, got 0")
        return self.token_count

    def _checked_words(self) -> int:
        if self.word_count < 1:
            raise ValueError("recall needs at least one scored token that is typed, got 0")
        return self.word_count
