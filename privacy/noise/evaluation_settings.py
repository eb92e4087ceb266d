"""Settings of evaluations by devices under a guarantee: how far one device counts, and the noise.

No torch: a file is read, and a plan is held against a device's floor, before torch is needed. The
arithmetic and its proof stand in ``privacy.noise.limited_counts``.
"""

import math
from typing import Literal

import msgspec

from privacy.accounting.checked_values import check_count, check_noise_multiplier
from privacy.accounting.events import Adjacency

LARGEST_LOSS_CAP = 700.0
"""Above it e to the loss fits no float."""


class EvaluationNoise(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far one device's counts go, and how much noise hides them.

    Attributes:
        noise_multiplier: z, noise standard deviation over the L2 sensitivity of all counts
            together; > 0.
        token_cap: Targets that one device counts at most; the counts of one with more are scaled
            down together.
        loss_cap: Largest mean log-loss of one device, in nats a target; a larger one counts as
            this much. ln of the vocabulary's size is that of a guess, and the noise grows with it.
    """

    noise_multiplier: float
    token_cap: int
    loss_cap: float

    def __post_init__(self) -> None:
        check_noise_multiplier(self.noise_multiplier)
        check_count(self.token_cap, "token_cap")
        if not 0 < self.loss_cap <= LARGEST_LOSS_CAP:
            raise ValueError(
                f"loss_cap must be > 0 and <= {LARGEST_LOSS_CAP:g}, got {self.loss_cap}"
            )

    def loss_error(self, adjacency: Adjacency, device_count: int) -> float:
        """Return about how far noise moves the mean log-loss, one standard deviation, in nats.

        Each device that answers is taken to have ``token_cap`` targets or more.
        """
        # The larger of the two kinds of counts: of words.
        std = self.noise_multiplier * counts_sensitivity(adjacency, of_words=True)
        return self.loss_cap / 2 * std / device_count


class MeasuredModels(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of released models that a guarantee has to know of.

    Attributes:
        kind: ``none``; ``public``: a text file of the coordinator; ``devices``: counts that
            devices outside the round's cohort report.
        every_rounds: Rounds from one evaluation to the next.
        cohort_size: Devices asked in one evaluation; for ``devices``. Where secret coins draw the
            rounds' cohorts they draw these too, this many on average.
        noise: How one device's counts are limited and the sum is noised; for ``devices`` under a
            guarantee, and needed there.
    """

    kind: Literal["none", "public", "devices"] = "none"
    every_rounds: int = 1
    cohort_size: int | None = None
    noise: EvaluationNoise | None = None

    def __post_init__(self) -> None:
        if self.every_rounds < 1:
            raise ValueError(f"every_rounds must be >= 1, got {self.every_rounds}")
        if (self.kind == "devices") != (self.cohort_size is not None):
            raise ValueError(
                'cohort_size belongs to kind = "devices"; '
                f'got kind = "{self.kind}" and cohort_size {self.cohort_size}'
            )
        if self.cohort_size is not None and self.cohort_size < 1:
            raise ValueError(f"cohort_size must be >= 1, got {self.cohort_size}")
        if self.noise is not None and self.kind != "devices":
            raise ValueError(f'noise belongs to kind = "devices", got kind = "{self.kind}"')


def counts_sensitivity(adjacency: Adjacency, *, of_words: bool) -> float:
    """Return how far one device moves the sum of ``privacy.noise.limited_counts``."""
    if adjacency != "replace-one":
        return 2.0
    return math.sqrt(7.0 if of_words else 6.0)
