"""Who comes when: the clock of a simulation, without anybody training."""

from typing import Any

import msgspec
import pytest

from server.config.rounds import RoundSettings
from server.machine.answers import Abort, Close
from server.machine.buffered import BufferedMachine, make_machine
from simulation.rounds.arrivals import Arrivals, Devices, SimulationError, arrivals_of
from simulation.rounds.participation import SeededSource

# Three fast devices and a slow one.
SECONDS = {"ann": 1.0, "ben": 2.0, "cat": 3.0, "slow": 20.0}
NAMES = sorted(SECONDS)


def arrivals(
    seconds: dict[str, float] | None = None, *, absence_rate: float = 0.0, **changes: Any
) -> tuple[Arrivals, Any]:
    values = {"cap": 9, "cohort_size": 4, "quorum": 2, "deadline_s": 60.0} | changes
    settings = msgspec.convert(values, RoundSettings)
    source = SeededSource(1)
    machine = make_machine(settings, source)
    devices = Devices(names=NAMES, seconds=seconds, absence_rate=absence_rate)
    return arrivals_of(machine, source, devices, settings, now=0.0), machine


def buffered(max_staleness: int = 9, **changes: Any) -> tuple[Arrivals, Any]:
    values: dict[str, Any] = {
        "selection": "first-come",
        "cohort_size": 2,
        "buffered": {"concurrency": 4, "max_staleness": max_staleness},
    }
    return arrivals(SECONDS, **(values | changes))


def closes(coming: Arrivals, machine: Any, count: int) -> list[tuple[float, dict[str, int]]]:
    """Return when the next rounds close, and whose updates of which age they hold."""
    orders = []
    for _ in range(count):
        order = coming.next_order(NAMES)
        assert isinstance(order, Close)
        ages = {receipt.client: receipt.staleness for receipt in order.receipts}
        orders.append((coming.now, ages))
        machine.released()
    return orders


def test_a_synchronous_round_takes_as_long_as_its_slowest_device() -> None:
    coming, machine = arrivals(SECONDS)

    times = [when for when, _ in closes(coming, machine, 2)]

    assert times == [20.0, 40.0]


def test_a_device_slower_than_the_deadline_has_fetched_a_model_for_nothing() -> None:
    coming, machine = arrivals(SECONDS, deadline_s=10.0)

    ((when, ages),) = closes(coming, machine, 1)

    assert (when, set(ages), coming.wasted) == (10.0, {"ann", "ben", "cat"}, 1)


def test_the_first_of_a_larger_cohort_decide_when_a_round_closes() -> None:
    coming, machine = arrivals(SECONDS, selection="first-come", cohort_size=2, over_selection=2.0)

    ((when, ages),) = closes(coming, machine, 1)

    assert (when, set(ages), coming.wasted) == (2.0, {"ann", "ben"}, 2)


def test_where_devices_take_no_time_none_passes() -> None:
    coming, machine = arrivals()

    assert [when for when, _ in closes(coming, machine, 3)] == [0.0, 0.0, 0.0]
    assert coming.wasted == 0


def test_a_buffered_round_closes_with_its_first_updates_and_the_slow_one_counts_later() -> None:
    coming, machine = buffered()

    # Round 1: ann at 1, ben at 2. Round 2: cat's first at 3, ann's second at 3 (begun at 2).
    # Round 3: ben's second at 4 is begun in round 2; ann's third ends at 4, begun at 3.
    assert closes(coming, machine, 3) == [
        (2.0, {"ann": 0, "ben": 0}),
        (3.0, {"cat": 1, "ann": 0}),
        (4.0, {"ben": 1, "ann": 0}),
    ]


def test_the_slow_one_is_counted_as_old_as_it_is_or_not_at_all() -> None:
    coming, machine = buffered(cap=40, max_staleness=30)
    slow = [ages["slow"] for _, ages in closes(coming, machine, 30) if "slow" in ages]
    bounded, other = buffered(cap=40, max_staleness=3)
    rounds = closes(bounded, other, 30)

    assert slow
    assert all(age > 10 for age in slow)
    assert not any("slow" in ages for _, ages in rounds)
    assert all(0 <= age <= 3 for _, ages in rounds for age in ages.values())


def test_devices_that_go_away_hold_nobody_up_for_long() -> None:
    coming, machine = buffered(absence_rate=0.5)

    assert len(closes(coming, machine, 9)) == 9


def test_arrivals_repeat_themselves() -> None:
    first, second = buffered(absence_rate=0.3), buffered(absence_rate=0.3)

    assert closes(*first, 9) == closes(*second, 9)


def test_a_deadline_that_nobody_can_keep_is_refused_before_the_run() -> None:
    with pytest.raises(SimulationError, match="1 of 4 are done within 2 s"):
        buffered(deadline_s=2.0)


def test_too_small_a_population_is_said() -> None:
    coming, _ = buffered()

    assert coming.next_order(["ann"]) is None


def test_a_round_whose_quorum_is_away_is_started_over() -> None:
    coming, machine = arrivals(SECONDS, absence_rate=0.999)

    order = coming.next_order(NAMES)

    assert isinstance(order, Abort)
    assert coming.now == 60.0
    assert not isinstance(machine, BufferedMachine)
