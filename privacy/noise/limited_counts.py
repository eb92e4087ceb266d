"""Devices' counts, added up so that none moves the sum far, and released once with noise.

A device reports n targets, their log-loss L, and hits h1 <= h3 <= n among the first and the first
three suggestions. With T = ``token_cap`` and B = ``loss_cap`` it adds, whatever it reports,

    t = min(n, T) / T                         its targets, in shares of T,
    d = t (2 min(L / n, B) / B - 1)           its log-loss, from half the cap in shares of TB / 2,
    a = t h1 / n,  b = t h3 / n               its hits, in shares of T:

all counts scaled down together where n > T, and a log-loss above B a target cut to it. So the mean
log-loss of the sums is B/2 (1 + Σd / Σt). It is counted from the middle because d then lies in
[-t, t] instead of [0, 2t]: half the noise for the same reach.

Sensitivity. The sum is one of vectors (t, d, a, b) with 0 <= t <= 1, |d| <= t and 0 <= a, b <= t.
Neighbours differ in one device's vector u:

- it is there or not, or becomes zeros: they come apart by |u| <= sqrt(1 + 1 + 1 + 1) = 2, which a
  device reaches that reports B nats a target and only hits;
- it becomes another one, v: by |u - v|, and with t and t' of the two
  |u - v|² <= (t - t')² + (t + t')² + 2 max(t, t')² = 2 (t² + t'²) + 2 max(t, t')² <= 6,
  reached by (1, 1, 1, 1) and (1, -1, 0, 0): √6.

Numbers are rounded to multiples of 2^-20 before they are added: t first, the others as shares of
the rounded one, so all bounds hold for what is rounded, and whole numbers add exactly in any order.

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


def limited(counts: DeviceCounts, settings: EvaluationNoise) -> tuple[int, int, int, int]:
    """Return a device's (t, d, a, b) in units of 2^-20; ValueError for impossible counts."""
    n, loss = counts.token_count, counts.log_loss_sum
    # Written as ``not loss >= 0`` so that NaN is refused too.
    if n < 1 or not loss >= 0 or not 0 <= counts.top1_hits <= counts.top3_hits <= n:
        raise ValueError(
            "counts must be of at least one target, with a loss >= 0 and "
            "top1_hits <= top3_hits <= token_count"
        )
    # Whole units first, so that what is a share of them is never more than they are.
    tokens = round(_UNITS * min(n, settings.token_cap) / settings.token_cap)
    surprise = 2 * min(loss / n, settings.loss_cap) / settings.loss_cap - 1
    top1, top3 = (round(tokens * hits / n) for hits in (counts.top1_hits, counts.top3_hits))
    return tokens, round(tokens * surprise), top1, top3


class LimitedSum:
    """The sum of devices' counts, each limited, until it is released with noise."""

    def __init__(self, settings: EvaluationNoise, adjacency: Adjacency) -> None:
        """Begin with nobody's counts."""
        self._settings = settings
        self._adjacency = adjacency
        self._units = [0, 0, 0, 0]

    def add(self, counts: DeviceCounts) -> None:
        """Add a device's counts, each device once; raises as `limited`."""
        added = limited(counts, self._settings)
        self._units = [sum(pair) for pair in zip(self._units, added, strict=True)]

    def noised(self, key: bytes) -> dict[str, float]:
        """Return the figures of the noised sum; call it once, after it is in the ledger.

        The guarantee covers whoever reads the figures: neighbours differ in one device's counts,
        as the run's relation says, and no sampling is assumed. ``key`` has
        ``privacy.noise.secure_gaussian.KEY_BYTES`` secret bytes of this draw alone.

        Returns:
            ``perplexity``, ``top1_recall`` and ``top3_recall``, without those that noise left
            senseless: all, where the targets do not stand out of it, else the ones out of range. A
            log-loss above the cap counts as the cap.
        """
        sums = torch.tensor(self._units, dtype=torch.float64) / _UNITS
        calibration = calibrate(
            noise_multiplier=self._settings.noise_multiplier,
            sensitivity=counts_sensitivity(self._adjacency),
            element_count=len(self._units),
        )
        tokens, above, top1, top3 = add_gaussian(sums, calibration, [Draw(key)]).tolist()
        if not tokens > calibration.noise_std:
            return {}
        figures: dict[str, float] = {}
        # A model that diverged lies at the cap, and noise on either side of it: bad either way.
        mean_loss = self._settings.loss_cap / 2 * (1 + min(1.0, above / tokens))
        if mean_loss >= 0:
            figures["perplexity"] = math.exp(mean_loss)
        for name, hits in (("top1_recall", top1), ("top3_recall", top3)):
            if 0 <= hits <= tokens:
                figures[name] = hits / tokens
        return figures
