"""Decide which clients take part in a round and which slot each one has.

A slot fixes the order in which updates are summed. In a drawn cohort it is the position among the
sorted names, so that it does not depend on who was faster.
"""

from collections.abc import Collection, Sequence
from typing import Protocol


class EntropySource(Protocol):
    """A source of draws that an attacker must not guess, such as privacy's ``SecureSource``."""

    def bytes(self, count: int, /) -> bytes:
        """Return ``count`` random bytes."""
        ...

    def choose(self, population: Sequence[str], k: int, /) -> list[str]:
        """Return ``k`` different members, uniformly and without replacement."""
        ...

    def flip(self, population: Sequence[str], rate: float, /) -> list[str]:
        """Return the members whose own coin, heads with chance ``rate``, showed heads."""
        ...


class Cohort(Protocol):
    """The slots of clients; ``members`` are drawn names, sorted, or None if anybody may come."""

    places: int
    members: tuple[str, ...] | None

    def slot_for(self, client: str, taken: Collection[int]) -> int | None:
        """Return the client's slot given the slots of others, or None if it has none."""
        ...


class DrawnCohort:
    """A cohort that was drawn before anybody checked in."""

    def __init__(self, members: Sequence[str], places: int | None = None) -> None:
        """Fix the slots of distinct names; ``places`` is at least their number."""
        self.members: tuple[str, ...] | None = tuple(sorted(members))
        self.places = len(members) if places is None else places
        self._slots = {name: slot for slot, name in enumerate(sorted(members))}

    def slot_for(self, client: str, taken: Collection[int]) -> int | None:
        """Return the position of the client among the sorted names, or None for an outsider."""
        return self._slots.get(client)


class CohortOverflowError(RuntimeError):
    """Raised when more devices were drawn than a round has places: nobody gets a lease."""


class PopulationTooLargeError(RuntimeError):
    """Raised when more devices are enrolled than the places of a round were chosen for."""


class FirstComeCohort:
    """A cohort that fills up as clients check in, with leases to spare."""

    members: tuple[str, ...] | None = None

    def __init__(
        self, places: int, lease_count: int, allowed: Collection[str] | None = None
    ) -> None:
        """Make ``places`` for updates and at least as many leases; None allows anybody."""
        self.places = places
        self._lease_count = lease_count
        self._allowed = None if allowed is None else frozenset(allowed)

    def slot_for(self, client: str, taken: Collection[int]) -> int | None:
        """Return the lowest slot that nobody holds, or None for a client that may not come now."""
        if self._allowed is not None and client not in self._allowed:
            return None
        if len(taken) >= self._lease_count:
            return None
        return next((slot for slot in range(self._lease_count) if slot not in taken), None)


def draw_cohort(source: EntropySource, population: Sequence[str], cohort_size: int) -> DrawnCohort:
    """Draw a cohort uniformly, without replacement, whatever the population's order.

    Raises:
        ValueError: If the population is smaller than the cohort.
    """
    if cohort_size > len(population):
        raise ValueError(
            f"cohort_size must be <= the {len(population)} enrolled devices, got {cohort_size}"
        )
    return DrawnCohort(source.choose(sorted(population), cohort_size))


def sample_cohort(
    source: EntropySource, population: Sequence[str], rate: float, places: int
) -> DrawnCohort:
    """Throw a coin for every member of the population, heads with chance q, ``rate``, in (0, 1].

    Raises:
        CohortOverflowError: If more were drawn than there are places.
    """
    members = source.flip(sorted(population), rate)
    if len(members) > places:
        # Not how many: that is what the places hide.
        raise CohortOverflowError(f"more devices were drawn than a round has places, {places}")
    return DrawnCohort(members, places)
