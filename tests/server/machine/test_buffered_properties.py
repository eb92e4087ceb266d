"""Whatever devices do, and in whatever order, buffered rounds keep their promises."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from protos.refusals import RefusalCode
from server.config.buffered import BufferedSettings
from server.config.rounds import RoundSettings
from server.machine.answers import (
    Close,
    CommitBegun,
    Committed,
    Lease,
    LeaseGiven,
    Phase,
    Receipt,
    Refused,
)
from server.machine.buffered import BufferedMachine
from tests.server.round_hands import CountingSource

POPULATION = [f"device-{number:04d}" for number in range(1, 6)]
CLIENTS = st.sampled_from(POPULATION)
MESSAGES = st.sampled_from([bytes(15) + bytes([last]) for last in range(2)])
DEADLINE_S = 10.0
CAP = 6


class BufferedRoundsUnderAnyOrder(RuleBasedStateMachine):
    @initialize(places=st.integers(1, 3), concurrency=st.integers(1, 5), bound=st.integers(0, 2))
    def start(self, places: int, concurrency: int, bound: int) -> None:
        self.limits = RoundSettings(
            cap=CAP,
            selection="first-come",
            cohort_size=places,
            quorum=1,
            deadline_s=DEADLINE_S,
            retry_limit=2,
            buffered=BufferedSettings(concurrency=concurrency, max_staleness=bound),
        )
        self.source = CountingSource()
        self.places, self.concurrency, self.bound = places, concurrency, bound
        self.machine = BufferedMachine(self.limits, self.source)
        self.now = 0.0
        self.leases: list[Lease] = []
        self.running: list[CommitBegun] = []
        self.commits: list[tuple[Committed, bytes]] = []
        self.settled: set[bytes] = set()
        self.waiting: dict[bytes, Receipt] = {}
        self.counted: set[tuple[int, str]] = set()
        self.released: list[int] = []

    @precondition(lambda self: self.machine.phase is Phase.WAITING)
    @rule()
    def open_round(self) -> None:
        assert self.machine.open_round(POPULATION, self.now)

    @rule(client=CLIENTS)
    def check_in(self, client: str) -> None:
        if self.machine.phase is Phase.WAITING:
            self.open_round()
        before = self.machine.going_on
        answer = self.machine.check_in(client, self.now)
        if isinstance(answer, LeaseGiven):
            assert answer.lease.client == client
            if answer.lease.nonce not in before:
                assert self.machine.phase is Phase.OPEN
                assert answer.lease.round_number == self.machine.round_number
            self.leases.append(answer.lease)

    @rule(client=CLIENTS)
    def lose(self, client: str) -> None:
        self.machine.lease_lost(client)

    @rule(client=CLIENTS)
    def decline(self, client: str) -> None:
        self.machine.decline(client)

    @precondition(lambda self: self.leases)
    @rule(age=st.integers(0, 7), message=MESSAGES, thief=st.none() | st.none() | CLIENTS)
    def begin(self, age: int, message: bytes, thief: str | None) -> None:
        held = self.leases[-1 - age % len(self.leases)]
        client = thief or held.client
        # What has run out of time ends whoever asks.
        self.machine.lease_of(client, bytes(16), self.now)
        before = self._state()
        answer = self.machine.begin_commit(client, held.nonce, message, self.now)
        if isinstance(answer, CommitBegun):
            assert client == held.client
            assert self.machine.phase is Phase.OPEN
            assert 0 <= answer.staleness <= self.bound
            self.running.append(answer)
            return
        assert self._state() == before  # I8
        if isinstance(answer, Refused) and answer.code is RefusalCode.STALE:
            assert self.machine.round_number - held.round_number > self.bound

    @precondition(lambda self: self.running)
    @rule(data=st.data(), succeeds=st.booleans())
    def finish(self, data: st.DataObject, *, succeeds: bool) -> None:
        begun = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        if not succeeds:
            self.machine.fail_commit(begun.lease)
            return
        committed = self.machine.finish_commit(begun.lease)
        receipt = committed.receipt
        assert receipt.round_number == self.machine.round_number
        assert receipt.base_round == begun.lease.round_number
        self.commits.append((committed, receipt.message_id))
        self.waiting[receipt.nonce] = receipt

    @precondition(lambda self: self.commits)
    @rule(age=st.integers(0, 3))
    def repeat(self, age: int) -> None:
        committed, message = self.commits[-1 - age % len(self.commits)]
        receipt = committed.receipt
        if self.machine.receipt_of(receipt.client, receipt.nonce) is not None:
            again = self.machine.begin_commit(receipt.client, receipt.nonce, message, self.now)
            assert again == replace(committed, repeated=True)

    @rule(to_wakeup=st.booleans())
    def pass_time(self, *, to_wakeup: bool) -> None:
        wakeup = self.machine.next_wakeup
        self.now = max(self.now, wakeup) if to_wakeup and wakeup else self.now + 1.0

    @rule()
    def tick(self) -> None:
        order = self.machine.tick(self.now)
        if isinstance(order, Close):
            self._check_close(order)
        elif self.machine.phase is Phase.OPEN and not self.running:
            assert self.machine.committed_count < self.places
            # Whoever sleeps until then is never woken again and again for nothing.
            assert (self.machine.next_wakeup or self.now + 1) > self.now

    @precondition(lambda self: self.machine.phase is Phase.CLOSING)
    @rule(succeeds=st.booleans())
    def release(self, *, succeeds: bool) -> None:
        number = self.machine.round_number
        if succeeds:
            self.released.append(number)
            self.machine.released()
        else:
            self.counted = {pair for pair in self.counted if pair[0] != number}
            self.machine.abort("disk")

    @precondition(lambda self: self.machine.phase is Phase.GIVEN_UP)
    @rule()
    def resume(self) -> None:
        self.machine.resume()

    @precondition(lambda self: self.machine.phase is Phase.OPEN and not self.running)
    @rule()
    def restart(self) -> None:
        machine = self.machine
        number, attempt = machine.round_number, machine.attempt
        self.machine = BufferedMachine(
            self.limits, self.source, round_number=number, attempt=attempt
        )
        self.machine.restore(None, self.waiting.values(), self.now + DEADLINE_S)
        assert self.machine.committed_count == machine.committed_count

    @invariant()
    def no_more_work_at_a_time_than_may(self) -> None:
        if hasattr(self, "limits"):
            assert len(self.machine.going_on) <= self.concurrency
            assert self.machine.committed_count + len(self.running) <= self.places

    @invariant()
    def nothing_is_out_that_would_be_too_old(self) -> None:
        if hasattr(self, "limits"):
            oldest = self.machine.round_number - self.bound
            assert all(oldest <= base for base in self.machine.base_rounds)

    @invariant()
    def every_acknowledged_update_is_held_or_settled(self) -> None:
        if hasattr(self, "limits") and self.machine.phase is Phase.OPEN:
            assert len(self.waiting) == self.machine.committed_count  # I2

    @invariant()
    def rounds_only_rise(self) -> None:
        if hasattr(self, "limits"):
            assert self.released == list(range(1, len(self.released) + 1))  # I4

    def _check_close(self, close: Close) -> None:
        slots = [receipt.slot for receipt in close.receipts]
        assert slots == sorted(set(slots))
        assert 1 <= len(slots) <= close.slot_count == self.places
        bases = [receipt.base_round for receipt in close.receipts]
        assert bases == sorted(bases)  # Whoever trains them goes through the releases once.
        places = list(close.places().values())
        assert places == sorted(set(places))
        assert all(0 <= place < close.slot_count for place in places)
        for receipt in close.receipts:
            pair = (close.round_number, receipt.client)
            assert pair not in self.counted  # I1
            self.counted.add(pair)
            assert receipt.nonce not in self.settled
            self.settled.add(receipt.nonce)
            assert self.waiting.pop(receipt.nonce) == receipt
        assert not self.waiting

    def _state(self) -> tuple[object, ...]:
        machine = self.machine
        return (
            machine.phase,
            machine.round_number,
            machine.attempt,
            machine.committed_count,
            machine.going_on,
            machine.next_wakeup,
        )


TestBufferedRoundsUnderAnyOrder = BufferedRoundsUnderAnyOrder.TestCase
TestBufferedRoundsUnderAnyOrder.settings = settings(
    max_examples=60, stateful_step_count=50, deadline=None
)
