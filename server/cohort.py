"""Decide who takes part in a round and which slot each one has.

A slot fixes the order in which updates are summed, so it must not depend on who was faster when
the cohort was drawn: there a slot is the position among the cohort's sorted names.
"""

from collections.abc import Collection, Sequence
from typing import Protocol


class EntropySource(Protocol):
    """Draw what an attacker must not guess; ``privacy.random.SecureSource`` is the real one."""

    def bytes(self, count: int, /) -> bytes:
        """Return ``count`` random bytes."""
        ...

    def choose(self, population: Sequence[str], k: int, /) -> list[str]:
        """Return ``k`` different members, uniformly and without replacement."""
        ...


class Cohort(Protocol):
    """Give slots to clients.

    Attributes:
        places: Updates that one round can take; the slot count of its aggregation.
        members: Names drawn in advance, sorted; None when anybody may come.
    """

    places: int
    members: tuple[str, ...] | None

    def slot_for(self, client: str, taken: Collection[int]) -> int | None:
        """Return the client's slot given the slots of others, or None if it has none."""
        ...


class DrawnCohort:
    """Hold a cohort that was drawn before anybody checked in."""

    def __init__(self, members: Sequence[str]) -> None:
        """Fix the slots.

        Args:
            members: Distinct client names, in any order.
        """
        self.members: tuple[str, ...] | None = tuple(sorted(members))
        self.places = len(members)
        self._slots = {name: slot for slot, name in enumerate(sorted(members))}

    def slot_for(self, client: str, taken: Collection[int]) -> int | None:
        """Return the position of the client among the sorted names, or None for an outsider."""
        return self._slots.get(client)


class FirstComeCohort:
    """Hold a cohort that fills up as clients check in, with leases to spare."""

    members: tuple[str, ...] | None = None

    def __init__(self, places: int, lease_count: int) -> None:
        """Make room.

        Args:
            places: Updates that count.
            lease_count: Leases given at most, at least ``places``.
        """
        self.places = places
        self._lease_count = lease_count

    def slot_for(self, client: str, taken: Collection[int]) -> int | None:
        """Return the lowest slot that nobody holds, or None when all leases are out."""
        return next((slot for slot in range(self._lease_count) if slot not in taken), None)


def draw_cohort(source: EntropySource, population: Sequence[str], cohort_size: int) -> DrawnCohort:
    """Draw a cohort uniformly, without replacement.

    The population is sorted first, so that with a source that repeats itself (in a simulation) the
    draw does not depend on the order in which clients enrolled.

    Raises:
        ValueError: If the population is smaller than the cohort.
    """
    if cohort_size > len(population):
        raise ValueError(
            f"cohort_size must be <= the {len(population)} enrolled devices, got {cohort_size}"
        )
    return DrawnCohort(source.choose(sorted(population), cohort_size))
