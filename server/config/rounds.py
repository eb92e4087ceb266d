"""Settings of a round: who takes part, when it closes, and how often it is tried."""

import math

from privacy.noise.participation_settings import Participation


class RoundSettings(Participation, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The participants of a round and its end.

    Attributes:
        over_selection: Leases for each place in the cohort, at least 1; the first ``cohort_size``
            updates count. Only for ``first-come``.
        quorum: Fewest updates with which a round may close. For ``sampled`` only the fewest
            connected devices with which one opens: that few were drawn must not show.
        deadline_s: Seconds from the opening of a round to its close.
        close_early: Whether a round closes as soon as everybody has committed. Sampled privacy
            modes need false: the moment of closing would tell who was away.
        retry_limit: New attempts at a round that misses its quorum, before the run waits for its
            operator.
    """

    over_selection: float = 1.0
    quorum: int
    deadline_s: float
    close_early: bool = True
    retry_limit: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("quorum", 1), ("retry_limit", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be >= {least}, got {getattr(self, name)}")
        if not 0 < self.deadline_s < math.inf:
            raise ValueError(f"deadline_s must be > 0 and finite, got {self.deadline_s}")
        if self.selection == "sampled" and self.close_early:
            raise ValueError(
                'close_early must be false with selection = "sampled": the moment of closing '
                "would tell who was away"
            )
        if self.cohort_size is not None and self.cohort_size < self.quorum:
            raise ValueError(
                f"cohort_size must be >= quorum {self.quorum}, got {self.cohort_size}; lower quorum"
            )
        self._check_over_selection()

    def _check_over_selection(self) -> None:
        if not 1 <= self.over_selection < math.inf:
            raise ValueError(f"over_selection must be >= 1 and finite, got {self.over_selection}")
        if self.over_selection > 1 and self.selection != "first-come":
            raise ValueError(
                f'over_selection must be 1 when selection = "{self.selection}", '
                f"got {self.over_selection}; "
                "a drawn cohort takes nobody in advance: raise cohort_size or lower quorum"
            )

    def cohort_size_of(self, population_size: int) -> int:
        """Return the cohort's size among that many enrolled devices, at least 1."""
        if self.cohort_size is not None:
            return self.cohort_size
        return max(1, round((self.participation_rate or 0) * population_size))

    def shortage(self, population_size: int) -> str | None:
        """Return why no round can open among that many enrolled devices; None if one can."""
        if self.selection == "sampled":
            return None
        size = self.cohort_size_of(population_size)
        if size > population_size:
            return (
                f"rounds.cohort_size must be <= the {population_size} clients that may take part, "
                f"got {size}; lower it and rounds.quorum"
            )
        if size < self.quorum:
            return (
                f"rounds.quorum must be <= the cohort, got {self.quorum}, and "
                f"participation_rate {self.participation_rate:g} of {population_size} clients "
                f"makes a cohort of {size}; lower rounds.quorum or raise rounds.participation_rate"
            )
        return None

    def lease_count_of(self, cohort_size: int) -> int:
        """Return how many leases a cohort of that size gives, over-selection included."""
        # Rounded first: 10 * 1.1 is 11.000000000000002, and that is not twelve leases.
        return math.ceil(round(cohort_size * self.over_selection, 9))
