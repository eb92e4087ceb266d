"""Settings of who takes part in a round, on which every guarantee rests; no torch."""

from typing import Literal

import msgspec


class Participation(msgspec.Struct, frozen=True, kw_only=True):
    """The draw of each round's cohort, and the number of rounds.

    Attributes:
        cap: Largest number of rounds; the run ends after it.
        selection: ``drawn``: the coordinator draws the cohort from all enrolled devices before
            anybody checks in. ``first-come``: the devices that check in first take part.
            ``sampled``: a secret coin for each device, the one draw that amplifies privacy.
        cohort_size: Clients in one round; m. Either this or ``participation_rate``; for
            ``sampled`` the places of a round, M, absent for as many as the coins need.
        participation_rate: Fraction of the enrolled devices in one round, in (0, 1]; C. For
            ``drawn``, and for ``sampled`` the chance of each device.
        population_size: Most devices that will be enrolled; for ``sampled``.
        quorum: Fewest updates with which a round may close; None where the settings are read
            without it.
    """

    cap: int
    selection: Literal["drawn", "first-come", "sampled"] = "drawn"
    cohort_size: int | None = None
    participation_rate: float | None = None
    population_size: int | None = None
    quorum: int | None = None

    def __post_init__(self) -> None:
        size, rate = self.cohort_size, self.participation_rate
        if self.cap < 1:
            raise ValueError(f"cap must be >= 1, got {self.cap}")
        if rate is not None and not 0 < rate <= 1:
            raise ValueError(f"participation_rate must be in (0, 1], got {rate}")
        if self.selection == "sampled":
            if rate is None or self.population_size is None:
                raise ValueError(
                    'selection = "sampled" needs participation_rate (the chance of each device) '
                    "and population_size (the most that will be enrolled)"
                )
            if self.population_size < 1:
                raise ValueError(f"population_size must be >= 1, got {self.population_size}")
        elif self.population_size is not None:
            raise ValueError('population_size belongs to selection = "sampled"')
        elif (size is None) == (rate is None):
            raise ValueError("give either cohort_size or participation_rate, and not both")
        elif rate is not None and self.selection == "first-come":
            raise ValueError(
                'participation_rate needs selection = "drawn"; give cohort_size for first-come'
            )
