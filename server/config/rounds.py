"""Settings of a round: who takes part, when it closes, and how often it is tried."""

import math
from typing import Literal

import msgspec


class RoundSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The participants of a round and its end.

    Attributes:
        cap: Largest number of rounds; the run ends after it.
        selection: ``drawn``: the coordinator draws the cohort from all enrolled devices before
            anybody checks in. ``first-come``: whoever checks in first takes part.
        cohort_size: Clients in one round; m. Either this or ``participation_rate``.
        participation_rate: Fraction of the enrolled devices in one round, in (0, 1]; C. Only for
            ``drawn``.
        over_selection: Leases given for each place in the cohort, at least 1; the first
            ``cohort_size`` updates count. Only for ``first-come``.
        quorum: Fewest updates with which a round may close. For ``sampled`` only the fewest
            connected devices with which one opens: that few were drawn must not show.
        deadline_s: Seconds from the opening of a round to its close.
        close_early: Whether a round closes as soon as everybody has committed. Sampled privacy
            modes need false: the moment of closing would tell who was away.
        retry_limit: How often a round that missed its quorum is started over before the run
            waits for its operator.
    """

    cap: int
    selection: Literal["drawn", "first-come", "sampled"] = "drawn"
    cohort_size: int | None = None
    participation_rate: float | None = None
    population_size: int | None = None
    over_selection: float = 1.0
    quorum: int
    deadline_s: float
    close_early: bool = True
    retry_limit: int = 3

    def __post_init__(self) -> None:
        for name, least in (("cap", 1), ("quorum", 1), ("retry_limit", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be >= {least}, got {getattr(self, name)}")
        if not 0 < self.deadline_s < math.inf:
            raise ValueError(f"deadline_s must be > 0 and finite, got {self.deadline_s}")
        self._check_size()
        self._check_over_selection()

    def _check_size(self) -> None:
        size, rate = self.cohort_size, self.participation_rate
        if rate is not None and not 0 < rate <= 1:
            raise ValueError(f"participation_rate must be in (0, 1], got {rate}")
        if self.selection == "sampled":
            self._check_sampled()
        elif self.population_size is not None:
            raise ValueError('population_size belongs to selection = "sampled"')
        elif (size is None) == (rate is None):
            raise ValueError("give either cohort_size or participation_rate, and not both")
        if size is not None and size < self.quorum:
            raise ValueError(
                f"cohort_size must be >= quorum {self.quorum}, got {size}; lower quorum"
            )
        if rate is not None and self.selection == "first-come":
            raise ValueError(
                'participation_rate needs selection = "drawn"; give cohort_size for first-come'
            )

    def _check_sampled(self) -> None:
        if self.participation_rate is None or self.population_size is None:
            raise ValueError(
                'selection = "sampled" needs participation_rate (the chance of each device) and '
                "population_size (the most that will be enrolled)"
            )
        if self.population_size < 1:
            raise ValueError(f"population_size must be >= 1, got {self.population_size}")
        if self.close_early:
            raise ValueError(
                'close_early must be false with selection = "sampled": the moment of closing '
                "would tell who was away"
            )

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
        """Say why no round can open among that many enrolled devices; None if one can."""
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
