"""How the step size of local training falls from round to round. No torch."""

import msgspec


class LearningRateDecay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A step size that shrinks by the same factor every round, until it is a share of the first.

    With a constant step the parameters jitter around a minimum, and a release is one such point.

    Attributes:
        last_round: Round that first has the smallest step size, at least 2; later ones have it too.
        final_share: Share of the first round's step size that is left then, in (0, 1].
    """

    last_round: int
    final_share: float

    def __post_init__(self) -> None:
        if self.last_round < 2:
            raise ValueError(f"last_round must be >= 2, got {self.last_round}")
        if not 0 < self.final_share <= 1:
            raise ValueError(f"final_share must be in (0, 1], got {self.final_share}")

    def share(self, round_number: int) -> float:
        """Return a round's share of the first one's step size; rounds count from 1."""
        done = min(1.0, (round_number - 1) / (self.last_round - 1))
        # A float's power is one: mypy cannot know that the base is positive.
        return float(self.final_share**done)
