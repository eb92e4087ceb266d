from dataclasses import replace

import msgspec
import pytest

from protos.refusals import RefusalCode
from server.config.rounds import RoundSettings
from server.machine.answers import (
    Close,
    ComeBack,
    ComeBackReason,
    CommitBegun,
    Committed,
    Lease,
    LeaseGiven,
    Phase,
    Refused,
)
from server.machine.buffered import BufferedMachine
from server.machine.life import RoundStateError
from server.machine.nonces import derived_nonces
from tests.server.round_hands import CountingSource

FIVE = [f"device-{number:04d}" for number in range(1, 6)]
ONE, TWO, THREE, FOUR, _ = FIVE
MESSAGE = bytes(16)


def buffered(*, max_staleness: int = 1, concurrency: int = 3, **changes: object) -> BufferedMachine:
    values = {
        "cap": 5,
        "selection": "first-come",
        "cohort_size": 2,
        "quorum": 1,
        "deadline_s": 10.0,
        "buffered": {"concurrency": concurrency, "max_staleness": max_staleness},
    } | changes
    settings = msgspec.convert(values, RoundSettings)
    return BufferedMachine(settings, CountingSource(), draw_nonce=derived_nonces(bytes(32)))


def lease(machine: BufferedMachine, client: str, now: float = 1.0) -> Lease:
    answer = machine.check_in(client, now)
    assert isinstance(answer, LeaseGiven)
    return answer.lease


def commit(machine: BufferedMachine, held: Lease, now: float = 2.0) -> Committed:
    answer = machine.commit(held.client, held.nonce, MESSAGE, now)
    assert isinstance(answer, Committed), answer
    return answer


def close(machine: BufferedMachine, now: float = 2.0) -> Close:
    order = machine.tick(now)
    assert isinstance(order, Close)
    return order


def release(machine: BufferedMachine, *clients: str, now: float = 2.0) -> Close:
    """Fill the buffer with these clients' updates, and open the next round."""
    for client in clients:
        commit(machine, lease(machine, client, now), now)
    order = close(machine, now)
    machine.released()
    machine.open_round(FIVE, now)
    return order


def test_a_release_is_made_of_the_first_updates_and_the_slow_device_works_on() -> None:
    machine = buffered()
    machine.open_round(FIVE, now=0.0)
    slow = lease(machine, THREE)

    first = release(machine, TWO, ONE)
    counted = commit(machine, slow).receipt
    commit(machine, lease(machine, ONE))
    second = close(machine)

    assert [receipt.client for receipt in first.receipts] == [TWO, ONE]
    assert (counted.round_number, counted.staleness, counted.base_round) == (2, 1, 1)
    # The oldest lease is summed first, whoever came first.
    assert [(receipt.client, receipt.staleness) for receipt in second.receipts] == [
        (THREE, 1),
        (ONE, 0),
    ]
    assert second.places() == {THREE: 0, ONE: 1}
    assert second.slot_count == 2


def test_an_update_beyond_the_bound_is_refused_as_stale() -> None:
    machine = buffered(max_staleness=1)
    machine.open_round(FIVE, now=0.0)
    slow = lease(machine, THREE)

    release(machine, ONE, TWO)
    assert machine.lease_of(THREE, slow.nonce, 2.0) == slow
    release(machine, ONE, TWO)

    stale = Refused(RefusalCode.STALE)
    assert machine.lease_of(THREE, slow.nonce, 2.0) == stale
    assert machine.begin_commit(THREE, slow.nonce, MESSAGE, 2.0) == stale
    # Its place is free, and its next lease is of the newest release.
    assert lease(machine, THREE, 2.0).round_number == 3


def test_a_round_awaits_whoever_it_has_a_lease_for() -> None:
    machine = buffered(concurrency=2)
    machine.open_round(FIVE, now=0.0)
    commit(machine, lease(machine, ONE))
    lease(machine, TWO)
    assert [name for name in FIVE if machine.awaits(name)] == FIVE[1:]

    lease(machine, THREE)
    assert [name for name in FIVE if machine.awaits(name)] == [TWO, THREE]

    machine.lease_lost(TWO)
    assert [name for name in FIVE if machine.awaits(name)] == FIVE[1:]


def test_a_round_lacks_its_quorum_only_past_its_deadline() -> None:
    machine = buffered()
    machine.open_round(FIVE, now=0.0)
    held = lease(machine, ONE, now=5.0)

    seen = []
    for now in (9.0, 10.0):
        machine.tick(now)
        seen.append(machine.lacks_quorum)
    begun = machine.begin_commit(ONE, held.nonce, MESSAGE, 11.0)
    seen.append(machine.lacks_quorum)
    assert isinstance(begun, CommitBegun)
    machine.finish_commit(begun.lease)
    seen.append(machine.lacks_quorum)

    assert seen == [False, True, False, False]


def test_a_device_counts_once_in_every_release_however_fast_it_is() -> None:
    machine = buffered()
    machine.open_round(FIVE, now=0.0)
    commit(machine, lease(machine, ONE))

    answer = machine.check_in(ONE, 4.0)

    assert answer == ComeBack(ComeBackReason.ALREADY_COMMITTED, 6.0)
    release(machine, TWO)
    assert lease(machine, ONE).round_number == 2


def test_no_more_devices_work_at_a_time_than_may() -> None:
    machine = buffered(concurrency=2)
    machine.open_round(FIVE, now=0.0)
    first = lease(machine, ONE)
    lease(machine, TWO)

    assert machine.check_in(THREE, 1.0) == ComeBack(ComeBackReason.ROUND_FULL, 9.0)
    assert machine.leased_count == 2
    commit(machine, first)

    assert lease(machine, THREE).slot == 2


def test_the_place_of_a_device_that_went_away_goes_to_another_and_only_then() -> None:
    machine = buffered(concurrency=1)
    machine.open_round(FIVE, now=0.0)
    held = lease(machine, ONE)
    machine.lease_lost(ONE)
    assert lease(machine, ONE) == held
    machine.lease_lost(ONE)

    taken = lease(machine, TWO)

    assert taken.slot == 1
    reassigned = Refused(RefusalCode.LEASE_REASSIGNED)
    assert machine.begin_commit(ONE, held.nonce, MESSAGE, 2.0) == reassigned


def test_a_lease_ends_after_its_own_time() -> None:
    machine = buffered()
    machine.open_round(FIVE, now=0.0)
    held = lease(machine, ONE, now=4.0)

    assert machine.next_wakeup == 10.0  # The round's, and then the lease's.
    machine.tick(10.0)
    assert machine.next_wakeup == 14.0
    assert machine.lease_of(ONE, held.nonce, 13.9) == held
    assert machine.lease_of(ONE, held.nonce, 14.0) == Refused(RefusalCode.LATE)
    assert lease(machine, ONE, now=14.0).nonce != held.nonce


def test_a_rounds_own_deadline_is_not_that_of_older_work() -> None:
    machine = buffered()
    machine.open_round(FIVE, now=0.0)
    lease(machine, THREE, now=2.0)

    release(machine, ONE, TWO, now=8.0)

    assert machine.deadline == 18.0
    assert machine.next_wakeup == 12.0


def test_an_old_round_closes_with_its_quorum_and_waits_for_it() -> None:
    machine = buffered()
    machine.open_round(FIVE, now=0.0)
    held = lease(machine, ONE, now=5.0)

    assert machine.tick(10.0) is None
    commit(machine, held, now=11.0)

    order = close(machine, now=11.0)
    assert [receipt.client for receipt in order.receipts] == [ONE]


def test_what_comes_while_a_release_is_made_comes_again_for_the_next() -> None:
    machine = buffered()
    machine.open_round(FIVE, now=0.0)
    third = lease(machine, THREE)
    first, second = lease(machine, ONE), None
    commit(machine, first)
    second = lease(machine, TWO)
    begun = machine.begin_commit(TWO, second.nonce, MESSAGE, 2.0)
    assert isinstance(begun, CommitBegun)

    # Full already, though the last commit is not durable yet.
    closed = Refused(RefusalCode.BUFFER_CLOSED)
    assert machine.begin_commit(THREE, third.nonce, MESSAGE, 2.0) == closed
    assert machine.tick(2.0) is None
    machine.finish_commit(begun.lease)
    close(machine)
    assert machine.begin_commit(THREE, third.nonce, MESSAGE, 2.0) == closed
    assert lease(machine, THREE) == third
    machine.released()
    assert machine.begin_commit(THREE, third.nonce, MESSAGE, 2.0) == closed
    machine.open_round(FIVE, now=2.0)

    assert commit(machine, third).receipt.staleness == 1


def test_a_repeated_commit_gets_the_same_answer_in_the_next_round_too() -> None:
    machine = buffered()
    machine.open_round(FIVE, now=0.0)
    held = lease(machine, ONE)
    committed = commit(machine, held)
    release(machine, TWO)

    again = machine.begin_commit(ONE, held.nonce, MESSAGE, 3.0)

    assert again == replace(committed, repeated=True)


def test_a_device_that_hands_its_lease_back_gets_none_until_the_next_release() -> None:
    machine = buffered()
    machine.open_round(FIVE, now=0.0)
    held = lease(machine, ONE)

    machine.decline(ONE)

    assert machine.going_on == frozenset()
    assert machine.lease_of(ONE, held.nonce, 2.0) == Refused(RefusalCode.UNKNOWN_LEASE)
    assert machine.check_in(ONE, 2.0) == ComeBack(ComeBackReason.DECLINED, 8.0)
    release(machine, TWO, THREE)
    assert isinstance(machine.check_in(ONE, 2.0), LeaseGiven)


def test_an_aborted_round_ends_its_own_leases_and_leaves_older_work_alone() -> None:
    machine = buffered()
    machine.open_round(FIVE, now=0.0)
    older = lease(machine, THREE)
    release(machine, ONE, TWO)
    newer, held = lease(machine, FOUR), lease(machine, ONE)
    receipt = commit(machine, held).receipt

    abort = machine.abort("disk")

    assert (abort.receipts, abort.gives_up) == ((receipt,), False)
    assert (machine.round_number, machine.attempt) == (2, 1)
    wrong = Refused(RefusalCode.WRONG_ROUND)
    assert machine.lease_of(FOUR, newer.nonce, 3.0) == wrong
    machine.open_round(FIVE, now=3.0)
    assert commit(machine, older).receipt.staleness == 1


def test_a_restart_keeps_what_was_committed_and_goes_on_with_later_tickets() -> None:
    machine = buffered()
    machine.open_round(FIVE, now=0.0)
    slow, lost = lease(machine, THREE), lease(machine, FOUR)
    release(machine, ONE, TWO)
    receipt = commit(machine, slow).receipt

    restarted = buffered()
    restarted.round_number = 2
    restarted.restore(None, [receipt], deadline=10.0)

    assert restarted.committed_count == 1
    unknown = Refused(RefusalCode.UNKNOWN_LEASE)
    assert restarted.begin_commit(FOUR, lost.nonce, MESSAGE, 3.0) == unknown
    assert restarted.check_in(THREE, 3.0) == ComeBack(ComeBackReason.ALREADY_COMMITTED, 7.0)
    assert lease(restarted, ONE, 3.0).slot == receipt.slot + 1
    commit(restarted, lease(restarted, ONE, 3.0))
    assert [held.staleness for held in close(restarted).receipts] == [1, 0]


def test_a_receipt_from_the_future_is_refused() -> None:
    machine = buffered()
    machine.open_round(FIVE, now=0.0)
    receipt = commit(machine, lease(machine, ONE)).receipt

    with pytest.raises(RoundStateError, match="staleness must be >= 0, got -1"):
        buffered().restore(None, [replace(receipt, staleness=-1)], deadline=10.0)


def test_the_last_release_ends_everything() -> None:
    machine = buffered(cap=1)
    machine.open_round(FIVE, now=0.0)
    slow = lease(machine, THREE)
    commit(machine, lease(machine, ONE))
    commit(machine, lease(machine, TWO))
    close(machine)

    machine.released()

    assert machine.phase is Phase.FINISHED
    assert machine.going_on == frozenset()
    assert machine.begin_commit(THREE, slow.nonce, MESSAGE, 3.0) == Refused(RefusalCode.LATE)
