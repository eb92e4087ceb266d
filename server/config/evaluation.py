"""Settings of the evaluation between rounds, which stops a run and chooses its best model."""

from typing import Literal

import msgspec

from privacy.noise.evaluation_settings import EvaluationNoise
from server.config.rounds import RoundSettings


class EvaluationSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The evaluation of released models.

    Attributes:
        kind: ``none``; ``public``: a text file of the coordinator; ``devices``: counts that
            devices outside the round's cohort report.
        public_text: Text file for ``public``, one sentence a line; relative to the federation's
            file.
        every_rounds: Rounds from one evaluation to the next.
        keep_best: Whether ``releases/best`` follows the lowest perplexity, which of a voice is e to
            its loss.
        cohort_size: Devices asked in one evaluation; for ``devices``. If secret coins draw the
            rounds' cohorts they draw these too, this many on average.
        quorum: Fewest reports that count as an evaluation; for ``devices``. Coins leave it at 1:
            how many came is their secret.
        deadline_s: Seconds that devices have to report; for ``devices``.
        noise: How one device's counts are limited and the sum is noised; for ``devices`` under a
            guarantee, and needed there.
    """

    kind: Literal["none", "public", "devices"] = "none"
    public_text: str | None = None
    every_rounds: int = 1
    keep_best: bool = True
    cohort_size: int | None = None
    quorum: int = 1
    deadline_s: float = 600.0
    noise: EvaluationNoise | None = None

    def __post_init__(self) -> None:
        if self.every_rounds < 1:
            raise ValueError(f"every_rounds must be >= 1, got {self.every_rounds}")
        if (self.kind == "public") != (self.public_text is not None):
            raise ValueError(
                'public_text belongs to kind = "public"; '
                f'got kind = "{self.kind}" and public_text {self.public_text!r}'
            )
        if (self.kind == "devices") != (self.cohort_size is not None):
            raise ValueError(
                'cohort_size belongs to kind = "devices"; '
                f'got kind = "{self.kind}" and cohort_size {self.cohort_size}'
            )
        if self.noise is not None and self.kind != "devices":
            raise ValueError(f'noise belongs to kind = "devices", got kind = "{self.kind}"')
        if self.kind == "devices":
            self.exchange()

    def is_due(self, round_number: int) -> bool:
        """Return whether the model of this round is evaluated."""
        return self.kind != "none" and round_number % self.every_rounds == 0

    def asks_devices(self, round_number: int) -> bool:
        """Return whether devices measure the model of this round."""
        return self.kind == "devices" and self.is_due(round_number)

    def exchange(self) -> RoundSettings:
        """Return the settings of one evaluation by devices, which runs as a round of its own.

        Raises:
            ValueError: If the kind is not ``devices``, or quorum or deadline are out of range.
        """
        return RoundSettings(
            cap=1,
            cohort_size=self.cohort_size,
            quorum=self.quorum,
            deadline_s=self.deadline_s,
            retry_limit=0,
        )
