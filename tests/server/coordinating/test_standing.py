"""How long a run spends in each phase, and when a round is overdue."""

import msgspec
import pytest

from server.config.rounds import RoundSettings
from server.coordinating.standing import PhaseClock
from server.machine.answers import Abort, Phase
from server.machine.rounds import RoundMachine
from tests.server.round_hands import CountingSource

ROUNDS = {"cap": 2, "cohort_size": 1, "quorum": 1, "deadline_s": 10.0, "retry_limit": 1}


@pytest.fixture
def machine() -> RoundMachine:
    return RoundMachine(msgspec.convert(ROUNDS, RoundSettings), CountingSource())


def take_part(machine: RoundMachine, now: float) -> None:
    given = machine.check_in("device", now)
    machine.commit("device", given.lease.nonce, bytes(16), now)  # type: ignore[union-attr]  # it has a place


def test_seconds_are_counted_for_the_phase_they_were_spent_in(machine: RoundMachine) -> None:
    clock = PhaseClock(machine, 0.0)

    machine.open_round(["device"], 3.0)
    clock.note(3.0)
    take_part(machine, 4.0)
    machine.tick(7.0)
    clock.note(7.0)
    machine.released()
    clock.note(12.5)
    # Asked in between, it tells the same and counts nothing twice.
    clock.note(13.0)
    clock.note(13.5)

    assert clock.seconds == {
        **dict.fromkeys(Phase, 0.0),
        Phase.WAITING: 3.0 + 1.0,
        Phase.OPEN: 4.0,
        Phase.CLOSING: 5.5,
    }


def test_a_round_that_is_started_over_stays_due_by_its_first_deadline(
    machine: RoundMachine,
) -> None:
    clock = PhaseClock(machine, 0.0)
    due = [clock.due]

    def note(now: float) -> None:
        clock.note(now)
        due.append(clock.due)

    for opened in (0.0, 50.0):
        machine.open_round(["device"], opened)
        note(opened)
        assert isinstance(machine.tick(opened + 10.0), Abort)
        note(opened + 10.0)
    machine.resume()
    machine.open_round(["device"], 100.0)
    take_part(machine, 101.0)
    machine.tick(101.0)
    note(101.0)
    machine.released()
    note(102.0)
    machine.open_round(["device"], 103.0)
    note(103.0)

    # Both attempts, what was given up, and the close.
    assert due == [None, *[10.0] * 5, None, 113.0]
