from collections.abc import Sequence

import msgspec
import pytest

from privacy.foundation.secure_source import SecureSource
from protos.refusals import RefusalCode
from server.config.rounds import RoundSettings
from server.machine.answers import (
    Abort,
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
from server.machine.cohort import CohortOverflowError, PopulationTooLargeError
from server.machine.life import RoundStateError
from server.machine.rounds import RoundMachine

FIVE = [f"device-{number:04d}" for number in range(1, 6)]
MESSAGE = bytes(16)
OTHER_MESSAGE = bytes(15) + b"\1"


def drawn(**changes: object) -> RoundMachine:
    values = {"cap": 3, "cohort_size": 3, "quorum": 2, "deadline_s": 10.0} | changes
    return RoundMachine(msgspec.convert(values, RoundSettings), SecureSource())


def first_come(**changes: object) -> RoundMachine:
    return drawn(**{"selection": "first-come", "cohort_size": 2, "over_selection": 1.5} | changes)


def members(machine: RoundMachine) -> tuple[str, ...]:
    assert machine.cohort is not None
    assert machine.cohort.members is not None
    return machine.cohort.members


def lease(machine: RoundMachine, client: str, now: float = 1.0) -> Lease:
    answer = machine.check_in(client, now)
    assert isinstance(answer, LeaseGiven)
    return answer.lease


def commit(machine: RoundMachine, client: str, now: float = 2.0) -> Committed:
    answer = machine.commit(client, lease(machine, client, now).nonce, MESSAGE, now)
    assert isinstance(answer, Committed)
    return answer


def test_a_drawn_cohort_has_its_slots_in_the_order_of_names() -> None:
    machine = drawn()

    assert machine.open_round(list(reversed(FIVE)), now=0.0)

    cohort = members(machine)
    assert len(set(cohort)) == 3
    assert set(cohort) <= set(FIVE)
    assert [lease(machine, name).slot for name in sorted(cohort)] == [0, 1, 2]


def test_who_is_not_in_the_cohort_gets_no_lease_and_is_told_when_the_round_ends() -> None:
    machine = drawn()
    machine.open_round(FIVE, now=0.0)
    outsider = next(name for name in FIVE if name not in members(machine))

    answer = machine.check_in(outsider, now=4.0)

    assert answer == ComeBack(ComeBackReason.NOT_IN_COHORT, 6.0)


def test_a_round_does_not_open_before_enough_devices_are_enrolled() -> None:
    machine = drawn()

    assert not machine.open_round(FIVE[:2], now=0.0)

    assert machine.phase is Phase.WAITING
    assert machine.check_in(FIVE[0], now=0.0) == ComeBack(ComeBackReason.NO_ROUND, 60.0)


def test_the_participation_rate_follows_the_population() -> None:
    machine = drawn(cohort_size=None, participation_rate=0.4, quorum=1)

    machine.open_round(FIVE, now=0.0)

    assert len(members(machine)) == 2


def test_a_round_closes_early_when_everybody_has_committed_and_once_only() -> None:
    machine = drawn()
    machine.open_round(FIVE, now=0.0)
    cohort = members(machine)
    for name in reversed(cohort[1:]):
        commit(machine, name)
        assert machine.tick(2.0) is None
    commit(machine, cohort[0])

    close = machine.tick(2.0)

    assert isinstance(close, Close)
    assert [receipt.client for receipt in close.receipts] == list(cohort)
    assert close.slot_count == 3
    assert machine.tick(3.0) is None
    assert machine.phase is Phase.CLOSING


def test_without_close_early_a_full_round_waits_for_its_deadline() -> None:
    machine = drawn(close_early=False)
    machine.open_round(FIVE, now=0.0)
    for name in members(machine):
        commit(machine, name)

    assert machine.tick(9.999) is None
    assert isinstance(machine.tick(10.0), Close)


def test_a_quorum_closes_at_the_deadline_without_the_missing() -> None:
    machine = drawn()
    machine.open_round(FIVE, now=0.0)
    cohort = members(machine)
    commit(machine, cohort[0])
    commit(machine, cohort[2])

    assert machine.next_wakeup == 10.0
    close = machine.tick(10.0)

    assert isinstance(close, Close)
    assert close.places() == {cohort[0]: 0, cohort[2]: 2}


def test_a_missed_quorum_starts_the_round_over_and_then_gives_it_up() -> None:
    machine = drawn(retry_limit=1)
    for attempt, gives_up in ((0, False), (1, True)):
        machine.open_round(FIVE, now=0.0)
        receipt = commit(machine, members(machine)[0]).receipt

        abort = machine.tick(10.0)

        assert abort == Abort(
            1, attempt, "quorum missed: 1 of 2 updates at the deadline", (receipt,), gives_up
        )

    assert machine.phase is Phase.GIVEN_UP
    machine.resume()
    assert (machine.round_number, machine.attempt) == (1, 2)
    assert machine.open_round(FIVE, now=20.0)


def test_a_commit_after_the_deadline_is_late_even_before_the_close() -> None:
    machine = drawn()
    machine.open_round(FIVE, now=0.0)
    held = lease(machine, members(machine)[0])

    assert machine.commit(held.client, held.nonce, MESSAGE, 10.0) == Refused(RefusalCode.LATE)


def test_what_belongs_to_an_ended_attempt_is_refused_by_how_it_ended() -> None:
    machine = drawn(quorum=1)
    machine.open_round(FIVE, now=0.0)
    aborted = lease(machine, members(machine)[0])
    machine.tick(10.0)
    assert machine.lease_of(aborted.client, aborted.nonce, 11.0) == Refused(RefusalCode.WRONG_ROUND)

    machine.open_round(FIVE, now=20.0)
    cohort = members(machine)
    late = lease(machine, cohort[0], 21.0)
    commit(machine, cohort[1], 21.0)
    machine.tick(30.0)
    machine.released()

    assert machine.lease_of(late.client, late.nonce, 31.0) == Refused(RefusalCode.LATE)
    assert machine.lease_of(late.client, bytes(16), 31.0) == Refused(RefusalCode.UNKNOWN_LEASE)


def test_a_repeated_commit_gets_the_same_answer_while_open_and_after_the_close() -> None:
    machine = drawn(quorum=1)
    machine.open_round(FIVE, now=0.0)
    first = commit(machine, members(machine)[0])
    nonce, client = first.receipt.nonce, first.receipt.client
    again = Committed(first.receipt, repeated=True)

    assert machine.commit(client, nonce, MESSAGE, 3.0) == again
    machine.tick(10.0)
    assert machine.commit(client, nonce, MESSAGE, 10.5) == again
    machine.released()
    assert machine.commit(client, nonce, MESSAGE, 11.0) == again


def test_another_message_under_a_committed_lease_is_a_duplicate() -> None:
    machine = drawn()
    machine.open_round(FIVE, now=0.0)
    receipt = commit(machine, members(machine)[0]).receipt

    answer = machine.commit(receipt.client, receipt.nonce, OTHER_MESSAGE, 3.0)

    assert answer == Refused(RefusalCode.DUPLICATE)
    assert machine.committed_count == 1


def test_the_lease_of_another_client_is_unknown() -> None:
    machine = drawn()
    machine.open_round(FIVE, now=0.0)
    mine, other = members(machine)[:2]
    nonce = lease(machine, mine).nonce

    assert machine.commit(other, nonce, MESSAGE, 2.0) == Refused(RefusalCode.UNKNOWN_LEASE)
    commit(machine, mine)
    assert machine.commit(other, nonce, MESSAGE, 2.0) == Refused(RefusalCode.UNKNOWN_LEASE)


def test_a_lost_client_comes_back_to_the_same_lease() -> None:
    machine = drawn()
    machine.open_round(FIVE, now=0.0)
    name = members(machine)[1]
    before = lease(machine, name, 1.0)

    machine.lease_lost(name)
    assert machine.leased_count == 0

    assert lease(machine, name, 5.0) == before
    assert machine.leased_count == 1


def test_a_lost_client_may_finish_its_upload_before_it_checks_in_again() -> None:
    machine = drawn()
    machine.open_round(FIVE, now=0.0)
    held = lease(machine, members(machine)[1])
    machine.lease_lost(held.client)

    answer = machine.commit(held.client, held.nonce, MESSAGE, 5.0)

    assert isinstance(answer, Committed)


def test_over_selection_gives_spare_leases_and_takes_the_first_updates() -> None:
    machine = first_come()
    machine.open_round(FIVE, now=0.0)
    leases = [lease(machine, name) for name in FIVE[:3]]  # 2 * 1.5 = 3 leases

    assert [held.slot for held in leases] == [0, 1, 2]
    assert machine.check_in(FIVE[3], 1.0) == ComeBack(ComeBackReason.ROUND_FULL, 9.0)

    machine.commit(FIVE[2], leases[2].nonce, MESSAGE, 2.0)
    machine.commit(FIVE[0], leases[0].nonce, MESSAGE, 2.0)
    late = machine.commit(FIVE[1], leases[1].nonce, MESSAGE, 2.0)
    close = machine.tick(2.0)

    assert late == Refused(RefusalCode.ROUND_FULL)
    assert isinstance(close, Close)
    assert close.slot_count == 2
    assert close.places() == {FIVE[0]: 0, FIVE[2]: 1}


def test_commits_that_run_at_once_do_not_exceed_the_places() -> None:
    machine = first_come(cohort_size=1, quorum=1)  # 1 * 1.5 gives 2 leases for 1 place
    machine.open_round(FIVE, now=0.0)
    first, second = lease(machine, FIVE[0]), lease(machine, FIVE[1])

    begun = machine.begin_commit(FIVE[0], first.nonce, MESSAGE, 2.0)
    refused = machine.begin_commit(FIVE[1], second.nonce, MESSAGE, 2.0)

    assert isinstance(begun, CommitBegun)
    assert refused == Refused(RefusalCode.ROUND_FULL)


def test_a_first_come_place_left_behind_goes_to_another_client() -> None:
    machine = first_come(over_selection=1.0, quorum=1)
    machine.open_round(FIVE, now=0.0)
    left = lease(machine, FIVE[0])
    lease(machine, FIVE[1])
    machine.lease_lost(FIVE[0])

    assert lease(machine, FIVE[2]).slot == left.slot

    refused = machine.commit(left.client, left.nonce, MESSAGE, 2.0)
    assert refused == Refused(RefusalCode.LEASE_REASSIGNED)
    assert isinstance(machine.check_in(FIVE[0], 2.0), ComeBack)


def test_a_drawn_round_awaits_its_members_until_they_have_committed_or_declined() -> None:
    machine = drawn()
    assert not any(machine.awaits(name) for name in FIVE)
    machine.open_round(FIVE, now=0.0)
    done, declined, lost = members(machine)
    commit(machine, done)
    machine.decline(declined)
    lease(machine, lost)
    machine.lease_lost(lost)

    assert [name for name in FIVE if machine.awaits(name)] == [lost]

    machine.tick(10.0)
    assert not machine.awaits(lost)


def test_a_first_come_round_awaits_holders_of_its_leases_and_others_while_there_is_a_place() -> (
    None
):
    machine = first_come(over_selection=1.0, quorum=1)
    machine.open_round(FIVE, now=0.0)
    for name in FIVE[:2]:
        lease(machine, name)

    assert [name for name in FIVE if machine.awaits(name)] == FIVE[:2]
    machine.lease_lost(FIVE[0])
    assert all(machine.awaits(name) for name in FIVE)


def test_a_place_is_not_given_away_while_its_commit_is_running() -> None:
    machine = first_come(over_selection=1.0, cohort_size=1, quorum=1)
    machine.open_round(FIVE, now=0.0)
    held = lease(machine, FIVE[0])
    begun = machine.begin_commit(held.client, held.nonce, MESSAGE, 2.0)
    machine.lease_lost(FIVE[0])

    assert isinstance(machine.check_in(FIVE[1], 3.0), ComeBack)

    assert isinstance(begun, CommitBegun)
    machine.finish_commit(begun.lease)
    assert isinstance(machine.check_in(FIVE[1], 3.0), ComeBack)


def test_a_round_does_not_end_while_a_commit_is_running() -> None:
    machine = drawn(quorum=1)
    machine.open_round(FIVE, now=0.0)
    held = lease(machine, members(machine)[0])
    begun = machine.begin_commit(held.client, held.nonce, MESSAGE, 9.9)
    assert isinstance(begun, CommitBegun)

    assert machine.tick(10.0) is None
    with pytest.raises(RoundStateError, match="while a commit is running"):
        machine.abort("operator")

    machine.finish_commit(begun.lease)
    close = machine.tick(10.1)
    assert isinstance(close, Close)
    assert [receipt.client for receipt in close.receipts] == [held.client]


def test_a_second_commit_beside_a_running_one_waits_or_is_a_duplicate() -> None:
    machine = drawn()
    machine.open_round(FIVE, now=0.0)
    held = lease(machine, members(machine)[0])
    machine.begin_commit(held.client, held.nonce, MESSAGE, 2.0)

    same = machine.begin_commit(held.client, held.nonce, MESSAGE, 2.0)
    other = machine.begin_commit(held.client, held.nonce, OTHER_MESSAGE, 2.0)

    assert same == Refused(RefusalCode.COMMIT_RUNNING)
    assert other == Refused(RefusalCode.DUPLICATE)


def test_a_commit_that_failed_can_be_made_again() -> None:
    machine = drawn()
    machine.open_round(FIVE, now=0.0)
    held = lease(machine, members(machine)[0])
    begun = machine.begin_commit(held.client, held.nonce, MESSAGE, 2.0)
    assert isinstance(begun, CommitBegun)

    machine.fail_commit(begun.lease)

    assert machine.committed_count == 0
    assert isinstance(machine.commit(held.client, held.nonce, OTHER_MESSAGE, 3.0), Committed)
    with pytest.raises(RoundStateError, match="no commit of"):
        machine.finish_commit(begun.lease)


def test_nobody_waits_for_a_client_that_declined() -> None:
    machine = drawn()
    machine.open_round(FIVE, now=0.0)
    first, second, third = members(machine)
    commit(machine, first)
    commit(machine, second)
    held = lease(machine, third)

    machine.decline(third)

    assert machine.check_in(third, 3.0) == ComeBack(ComeBackReason.DECLINED, 7.0)
    refused = machine.commit(third, held.nonce, MESSAGE, 3.0)
    assert refused == Refused(RefusalCode.UNKNOWN_LEASE)
    assert isinstance(machine.tick(3.0), Close)


def test_declining_does_not_undo_a_commit() -> None:
    machine = drawn()
    machine.open_round(FIVE, now=0.0)
    first = members(machine)[0]
    commit(machine, first)

    machine.decline(first)

    assert machine.committed_count == 1
    assert machine.check_in(first, 3.0) == ComeBack(ComeBackReason.ALREADY_COMMITTED, 7.0)


def test_a_restored_round_goes_on_with_its_cohort_and_its_commits() -> None:
    before = drawn()
    before.open_round(FIVE, now=0.0)
    cohort = members(before)
    receipt = commit(before, cohort[1]).receipt

    after = drawn()
    after.restore(cohort, [receipt], deadline=105.0)

    assert after.next_wakeup == 105.0
    assert members(after) == cohort
    again = after.commit(receipt.client, receipt.nonce, MESSAGE, 101.0)
    assert again == Committed(receipt, repeated=True)
    assert isinstance(after.check_in(cohort[1], 101.0), ComeBack)
    assert lease(after, cohort[2], 101.0).slot == 2
    commit(after, cohort[0], 102.0)
    commit(after, cohort[2], 102.0)
    close = after.tick(102.0)
    assert isinstance(close, Close)
    assert [held.client for held in close.receipts] == list(cohort)


def test_a_restored_first_come_round_keeps_the_slots_that_are_taken() -> None:
    before = first_come()
    before.open_round(FIVE, now=0.0)
    receipt = commit(before, FIVE[4]).receipt

    after = first_come()
    after.restore(None, [receipt], deadline=105.0)

    assert lease(after, FIVE[0], 101.0).slot == 1


def test_receipts_of_another_attempt_are_not_restored() -> None:
    machine = drawn()
    machine.open_round(FIVE, now=0.0)
    receipt = commit(machine, members(machine)[0]).receipt
    later = RoundMachine(
        RoundSettings(cap=3, cohort_size=3, quorum=2, deadline_s=10.0),
        SecureSource(),
        round_number=2,
    )

    with pytest.raises(RoundStateError, match=r"round and attempt \(2, 0\), got \(1, 0\)"):
        later.restore(FIVE[:3], [receipt], deadline=10.0)


def test_the_run_ends_at_its_cap() -> None:
    machine = drawn(cap=1, quorum=1)
    machine.open_round(FIVE, now=0.0)
    commit(machine, members(machine)[0])
    machine.tick(10.0)

    machine.released()

    assert machine.phase is Phase.FINISHED
    assert machine.check_in(FIVE[0], 11.0) == ComeBack(ComeBackReason.FINISHED, 60.0)
    with pytest.raises(RoundStateError, match="phase must be waiting, got finished"):
        machine.open_round(FIVE, now=11.0)


def test_a_run_that_starts_past_its_cap_is_finished() -> None:
    settings = RoundSettings(cap=3, cohort_size=3, quorum=2, deadline_s=10.0)

    assert RoundMachine(settings, SecureSource(), round_number=4).phase is Phase.FINISHED


def test_the_run_ends_before_its_cap_when_told() -> None:
    machine = drawn()

    machine.finish()

    assert machine.phase is Phase.FINISHED


def test_a_close_that_cannot_be_carried_out_starts_the_round_over() -> None:
    machine = drawn(quorum=1)
    machine.open_round(FIVE, now=0.0)
    receipt = commit(machine, members(machine)[0]).receipt
    machine.tick(10.0)

    abort = machine.abort("an update was not readable")

    assert abort == Abort(1, 0, "an update was not readable", (receipt,), gives_up=False)
    assert (machine.phase, machine.round_number, machine.attempt) == (Phase.WAITING, 1, 1)


class Heads:
    """Let the coins of the first names show heads."""

    def __init__(self, count: int) -> None:
        self._count = count

    def bytes(self, count: int) -> bytes:
        return SecureSource().bytes(count)

    def choose(self, population: Sequence[str], k: int) -> list[str]:
        return list(population[:k])

    def flip(self, population: Sequence[str], rate: float) -> list[str]:
        return list(population[: self._count])


def sampled(heads: int, places: int = 4) -> RoundMachine:
    settings = RoundSettings(
        cap=3,
        selection="sampled",
        participation_rate=0.5,
        population_size=5,
        quorum=2,
        deadline_s=10.0,
        close_early=False,
    )
    return RoundMachine(settings, Heads(heads), sampled_places=places)


def test_a_sampled_round_closes_at_its_deadline_and_not_before() -> None:
    machine = sampled(heads=2)
    machine.open_round(FIVE, now=0.0)
    commit(machine, FIVE[0])
    commit(machine, FIVE[1])

    assert machine.tick(9.0) is None
    order = machine.tick(10.0)

    assert isinstance(order, Close)
    assert order.slot_count == 4
    assert list(order.places()) == FIVE[:2]


@pytest.mark.parametrize("heads", [0, 1])
def test_a_sampled_round_never_tells_how_few_came(heads: int) -> None:
    machine = sampled(heads)
    machine.open_round(FIVE, now=0.0)

    # The quorum is 2, and nobody has committed.
    order = machine.tick(10.0)

    assert order == Close(1, 0, 4, ())


def test_a_draw_of_more_than_the_places_opens_no_round() -> None:
    machine = sampled(heads=5)

    with pytest.raises(CohortOverflowError):
        machine.open_round(FIVE, now=0.0)

    assert machine.phase is Phase.WAITING
    assert machine.check_in(FIVE[0], now=0.0) == ComeBack(ComeBackReason.NO_ROUND, 60.0)


def test_a_population_above_the_declared_one_opens_no_round() -> None:
    machine = sampled(heads=1)

    with pytest.raises(PopulationTooLargeError, match=r"at most 5 devices .* got 6"):
        machine.open_round([*FIVE, "device-0006"], now=0.0)


def test_a_population_below_the_declared_one_is_drawn_at_the_same_rate() -> None:
    machine = sampled(heads=1)

    assert machine.open_round(FIVE[:1], now=0.0)


def test_a_sampled_round_that_is_taken_up_again_keeps_its_places() -> None:
    machine = sampled(heads=2)

    machine.restore(FIVE[:2], [], deadline=10.0)

    assert machine.tick(10.0) == Close(1, 0, 4, ())


def test_the_places_of_a_sampled_round_must_be_said() -> None:
    with pytest.raises(ValueError, match="sampled_places must be given"):
        drawn(
            selection="sampled",
            cohort_size=None,
            participation_rate=0.5,
            population_size=5,
            close_early=False,
        )


def test_a_first_come_round_can_be_for_those_it_was_opened_for() -> None:
    settings = RoundSettings(
        cap=3, selection="first-come", cohort_size=2, quorum=1, deadline_s=10.0
    )
    machine = RoundMachine(settings, SecureSource(), limits_who_comes=True)
    machine.open_round(FIVE[:2], now=0.0)

    assert isinstance(machine.check_in(FIVE[2], now=1.0), ComeBack)
    assert lease(machine, FIVE[0]).slot == 0
