from collections import Counter
from collections.abc import Sequence

import pytest

from privacy.foundation.secure_source import SecureSource
from server.machine.cohort import (
    CohortOverflowError,
    DrawnCohort,
    FirstComeCohort,
    draw_cohort,
    sample_cohort,
)


class LastOnes:
    """Draw the last members, so that the order of the population shows."""

    def bytes(self, count: int) -> bytes:
        return bytes(count)

    def choose(self, population: Sequence[str], k: int) -> list[str]:
        return list(population[-k:])

    def flip(self, population: Sequence[str], rate: float) -> list[str]:
        return list(population[-round(rate * len(population)) :])


def test_the_draw_does_not_depend_on_the_order_of_enrolment() -> None:
    cohort = draw_cohort(LastOnes(), ["c", "a", "d", "b"], 2)

    assert cohort.members == ("c", "d")


def test_every_client_is_drawn_equally_often() -> None:
    names = [f"device-{number:04d}" for number in range(5)]
    drawn = Counter[str]()

    for _ in range(2000):
        drawn.update(draw_cohort(SecureSource(), names, 2).members or ())

    # Each count is binomial(2000, 0.4): mean 800, standard deviation 21.9. Six and a
    # half on either side fail falsely for one of five clients once in billions of runs.
    assert all(657 < drawn[name] < 943 for name in names)


def test_a_cohort_larger_than_the_population_is_refused() -> None:
    with pytest.raises(ValueError, match="<= the 1 enrolled devices, got 2"):
        draw_cohort(SecureSource(), ["a"], 2)


def test_an_outsider_has_no_slot_in_a_drawn_cohort() -> None:
    cohort = DrawnCohort(["b", "a"])

    assert [cohort.slot_for(name, ()) for name in ("a", "b", "c")] == [0, 1, None]


def test_first_come_gives_the_lowest_free_slot() -> None:
    cohort = FirstComeCohort(2, 3)

    assert cohort.slot_for("a", {0, 2}) == 1
    assert cohort.slot_for("a", {0, 1, 2}) is None


def test_first_come_takes_only_those_who_may_come() -> None:
    cohort = FirstComeCohort(2, 2, ["a", "b"])

    assert cohort.slot_for("b", ()) == 0
    assert cohort.slot_for("c", ()) is None


def test_a_sampled_cohort_has_its_fixed_places_however_many_were_drawn() -> None:
    cohort = sample_cohort(LastOnes(), ["c", "a", "d", "b"], 0.5, places=3)

    assert cohort.members == ("c", "d")
    assert cohort.places == 3


def test_more_heads_than_places_give_nobody_a_lease() -> None:
    with pytest.raises(CohortOverflowError, match="than a round has places, 1"):
        sample_cohort(LastOnes(), ["c", "a", "d", "b"], 0.5, places=1)
