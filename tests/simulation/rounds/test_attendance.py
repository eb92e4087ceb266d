"""A simulated round: present clients commit, and the deadline decides about the others."""

from typing import Any

import msgspec
import pytest

from server.config.rounds import RoundSettings
from server.machine.answers import Abort, Close
from server.machine.rounds import RoundMachine
from simulation.rounds.attendance import next_order
from simulation.rounds.participation import SeededSource

NAMES = ["ann", "ben", "cat", "dan"]


def order_of(absence_rate: float = 0.0, **changes: Any) -> Close | Abort | None:
    values = {"cap": 9, "cohort_size": 4, "quorum": 2, "deadline_s": 60.0} | changes
    source = SeededSource(1)
    machine = RoundMachine(msgspec.convert(values, RoundSettings), source)
    return next_order(machine, source, NAMES, everybody=NAMES, absence_rate=absence_rate)


def test_a_round_whose_clients_are_all_present_has_an_update_of_each() -> None:
    order = order_of()

    assert isinstance(order, Close)
    assert sorted(receipt.client for receipt in order.receipts) == NAMES


def test_the_first_of_a_larger_cohort_make_the_round() -> None:
    order = order_of(selection="first-come", cohort_size=2, over_selection=2.0)

    assert isinstance(order, Close)
    assert len(order.receipts) == 2


def test_a_round_without_anybody_misses_its_quorum_at_the_deadline() -> None:
    order = order_of(absence_rate=1.0)

    assert isinstance(order, Abort)
    assert order.reason == "quorum missed: 0 of 2 updates at the deadline"


@pytest.mark.parametrize("seed_free_rate", [0.3, 0.5])
def test_absent_clients_hold_a_lease_and_commit_nothing(seed_free_rate: float) -> None:
    order = order_of(absence_rate=seed_free_rate, quorum=1)

    assert isinstance(order, Close)
    assert len(order.receipts) < len(NAMES)


def test_no_round_opens_among_too_few_clients() -> None:
    assert order_of(cohort_size=5) is None
