"""Devices' counts, added up so that none moves the sum far, and released once with noise.

A device reports n targets, their log-loss L, and hits h1 <= h3 <= n among the first and the first
three suggestions. Of words it also reports how many of the n are ends of sentences, e, which nobody
types, and how many are words that the list does not have, q; then h3 + q + e <= n. With
T = ``token_cap`` and B = ``loss_cap`` it adds, whatever it reports,

    t = min(n, T) / T                         its targets, in shares of T,
    d = t (2 min(L / n, B) / B - 1)           its log-loss, from half the cap in shares of TB / 2,
    a = t h1 / n,  b = t h3 / n               its hits, in shares of T,
    s = t e / n,   u = t q / n                its ends and unknown words, for words alone:

all counts scaled down together where n > T, and a log-loss above B a target cut to it. So the mean
log-loss of the sums is B/2 (1 + Σd / Σt). It is counted from the middle because d then lies in
[-t, t] instead of [0, 2t]: half the noise for the same reach. Recall of words is Σa / (Σt - Σs).

Sensitivity. The sum is one of vectors x = (t, d, a, b) with 0 <= t <= 1, |d| <= t and
0 <= a <= b <= t; of words, x = (t, d, a, b, s, u) with b + s + u <= t. Distances are convex and so
largest between corners: 0, and t = 1 with d = -1 or 1 and (a, b, s, u) one of (0, 0, 0, 0),
(0, 1, 0, 0), (1, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1). Neighbours differ in one device's x:

- it is there or not, or becomes zeros: they come apart by |x| <= sqrt(1 + 1 + 1 + 1) = 2, which a
  device reaches that reports B nats a target and only hits. Ends and unknown words are no hits, so
  they take this no further;
- it becomes another one, y. Their losses differ by 2 at most, their hits by (1, 1):
  |x - y|² <= 4 + 2 = 6, reached by (1, 1, 1, 1) and (1, -1, 0, 0): √6. Of words the other one may
  have ends, or unknown words, for its hits: 4 + 2 + 1 = 7, so √7.

Numbers are rounded to multiples of 2^-20 before they are added: t first, the others as shares of
the rounded one that keep their order, so all bounds hold for what is rounded, and whole numbers add
exactly in any order.

The noise covers the sum; ratios of the noised sums cost nothing more. The choice of devices that
are asked must follow from none of their texts; its worth is the accountant's business.
"""

import math
from typing import Protocol

import torch

from privacy.accounting.events import Adjacency
from privacy.noise.evaluation_settings import EvaluationNoise, counts_sensitivity
from privacy.noise.secure_gaussian import Draw, add_gaussian, calibrate

_UNITS = 1 << 20


class DeviceCounts(Protocol):
    """One device's report; ``models.tasks.metrics.Counts`` is the real one."""

    @property
    def token_count(self) -> int:
        """Return the targets scored, n."""

    @property
    def log_loss_sum(self) -> float:
        """Return the sum of their negative log-likelihoods, L, in nats."""

    @property
    def top1_hits(self) -> int:
        """Return the targets that were the first suggestion, h1."""

    @property
    def top3_hits(self) -> int:
        """Return the targets among the first three, h3."""

    @property
    def end_count(self) -> int:
        """Return the ends of sentences, e; 0 but of words."""

    @property
    def unknown_count(self) -> int:
        """Return the words that the list does not have, q; 0 but of words."""


def limited(counts: DeviceCounts, settings: EvaluationNoise) -> tuple[int, int, int, int, int, int]:
    """Return a device's (t, d, a, b, s, u) in units of 2^-20; ValueError for impossible counts."""
    n, loss = counts.token_count, counts.log_loss_sum
    listed = n - counts.end_count - counts.unknown_count
    # Written as ``not loss >= 0`` so that NaN is refused too.
    if (
        n < 1
        or not loss >= 0
        or not 0 <= counts.top1_hits <= counts.top3_hits <= listed
        or min(counts.end_count, counts.unknown_count) < 0
    ):
        raise ValueError(
            "counts must be of at least one target, with a loss >= 0 and "
            "top1_hits <= top3_hits <= token_count without ends and unknown words"
        )
    # Whole units first, so that what is a share of them is never more than they are.
    tokens = round(_UNITS * min(n, settings.token_cap) / settings.token_cap)
    surprise = 2 * min(loss / n, settings.loss_cap) / settings.loss_cap - 1
    top1, top3, known, words = (
        round(tokens * share / n)
        for share in (counts.top1_hits, counts.top3_hits, listed, n - counts.end_count)
    )
    # Rounding keeps top1 <= top3 <= known <= words <= tokens, and these are the steps between.
    return tokens, round(tokens * surprise), top1, top3, tokens - words, words - known


class LimitedSum:
    """The sum of devices' counts, each limited, until it is released with noise."""

    def __init__(self, settings: EvaluationNoise, adjacency: Adjacency, *, of_words: bool) -> None:
        """Begin with nobody's counts; without ``of_words`` nothing is told of ends and words."""
        self._settings = settings
        self._adjacency = adjacency
        self._of_words = of_words
        self._units = [0] * (6 if of_words else 4)

    def add(self, counts: DeviceCounts) -> None:
        """Add a device's counts, each device once.

        Raises:
            ValueError: If they are impossible, or have ends or unknown words and are of none.
        """
        added = limited(counts, self._settings)
        if any(added[len(self._units) :]):
            raise ValueError("counts of a task without words must have no ends and unknown words")
        self._units = [sum(pair) for pair in zip(self._units, added, strict=False)]

    def noised(self, key: bytes) -> dict[str, float]:
        """Return the figures of the noised sum; call it once, after it is in the ledger.

        The guarantee covers whoever reads the figures: neighbours differ in one device's counts,
        as the run's relation says, and no sampling is assumed. ``key`` has
        ``privacy.noise.secure_gaussian.KEY_BYTES`` secret bytes of this draw alone.

        Returns:
            ``perplexity``, ``top1_recall`` and ``top3_recall``, of words also ``unknown_words``,
            ``listed_top1_recall`` and ``listed_top3_recall``, without those that noise left
            senseless: all, where their targets do not stand out of it, else the ones out of range.
            A log-loss above the cap counts as the cap.
        """
        sums = torch.tensor(self._units, dtype=torch.float64) / _UNITS
        calibration = calibrate(
            noise_multiplier=self._settings.noise_multiplier,
            sensitivity=counts_sensitivity(self._adjacency, of_words=self._of_words),
            element_count=len(self._units),
        )
        noised = add_gaussian(sums, calibration, [Draw(key)]).tolist()
        tokens, above, top1, top3, ends, unknown = (*noised, 0.0, 0.0)[:6]
        if not tokens > calibration.noise_std:
            return {}
        figures: dict[str, float] = {}
        # A model that diverged lies at the cap, and noise on either side of it: bad either way.
        mean_loss = self._settings.loss_cap / 2 * (1 + min(1.0, above / tokens))
        if mean_loss >= 0:
            figures["perplexity"] = math.exp(mean_loss)
        words, listed = tokens - ends, tokens - ends - unknown
        shares = {"top1_recall": (top1, words), "top3_recall": (top3, words)}
        if self._of_words:
            shares |= {
                "unknown_words": (unknown, words),
                "listed_top1_recall": (top1, listed),
                "listed_top3_recall": (top3, listed),
            }
        for name, (part, whole) in shares.items():
            if whole > calibration.noise_std and 0 <= part <= whole:
                figures[name] = part / whole
        return figures
