"""Settings of the evaluation between rounds, which stops a run and chooses its best model."""

from privacy.noise.evaluation_settings import MeasuredModels
from server.config.rounds import RoundSettings


class EvaluationSettings(MeasuredModels, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The evaluation of released models.

    Attributes:
        public_text: Text file for ``public``, one sentence a line; relative to the federation's
            file.
        keep_best: Whether ``releases/best`` follows the lowest perplexity, for a voice e^loss.
        quorum: Fewest reports that count as an evaluation; for ``devices``. Coins leave it at 1:
            how many came is their secret.
        deadline_s: Seconds that devices have to report; for ``devices``.
    """

    public_text: str | None = None
    keep_best: bool = True
    quorum: int = 1
    deadline_s: float = 600.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.kind == "public") != (self.public_text is not None):
            raise ValueError(
                'public_text belongs to kind = "public"; '
                f'got kind = "{self.kind}" and public_text {self.public_text!r}'
            )
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
