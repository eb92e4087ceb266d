"""Whatever devices and the network do, and in whatever order, a round keeps its promises."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Literal

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from server.config.rounds import RoundSettings
from server.machine.answers import (
    Abort,
    Close,
    CommitBegun,
    Committed,
    Lease,
    LeaseGiven,
    Phase,
    Receipt,
    Refused,
)
from server.machine.rounds import RoundMachine

POPULATION = [f"device-{number:04d}" for number in range(1, 5)]
CLIENTS = st.sampled_from(POPULATION)
MESSAGES = st.sampled_from([bytes(15) + bytes([last]) for last in range(3)])
DEADLINE_S = 10.0


class RepeatableSource:
    """Draw what Hypothesis can repeat."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def choose(self, population: Sequence[str], k: int) -> list[str]:
        return self._random.sample(population, k)

    def flip(self, population: Sequence[str], rate: float) -> list[str]:
        return [name for name in population if self._random.random() < rate]


class RoundsUnderAnyOrder(RuleBasedStateMachine):
    @initialize(
        selection=st.sampled_from(["drawn", "first-come"]),
        cohort_size=st.integers(1, 3),
        close_early=st.booleans(),
        seed=st.integers(0, 1000),
        data=st.data(),
    )
    def start(
        self,
        selection: Literal["drawn", "first-come"],
        cohort_size: int,
        close_early: bool,
        seed: int,
        data: st.DataObject,
    ) -> None:
        spare = data.draw(
            st.sampled_from([1.0, 1.5]) if selection == "first-come" else st.just(1.0)
        )
        self.limits = RoundSettings(
            cap=3,
            selection=selection,
            cohort_size=cohort_size,
            over_selection=spare,
            quorum=data.draw(st.integers(1, cohort_size)),
            deadline_s=DEADLINE_S,
            close_early=close_early,
            retry_limit=2,
        )
        self.machine = RoundMachine(self.limits, RepeatableSource(seed))
        self.now = 0.0
        self.running: list[tuple[CommitBegun, bytes]] = []
        self.acknowledged: dict[bytes, Receipt] = {}
        self.settled: set[bytes] = set()
        self.aggregated: set[tuple[int, str]] = set()
        self.released: list[int] = []
        self.opened: list[tuple[int, int]] = []
        self.leases: list[Lease] = []
        self.commits: list[tuple[Committed, bytes]] = []

    @precondition(lambda self: self.machine.phase is Phase.WAITING)
    @rule()
    def open_round(self) -> None:
        assert self.machine.open_round(POPULATION, self.now)
        self.opened.append((self.machine.round_number, self.machine.attempt))

    @rule(client=CLIENTS)
    def check_in(self, client: str) -> None:
        if self.machine.phase is Phase.WAITING:
            self.open_round()
        answer = self.machine.check_in(client, self.now)
        if isinstance(answer, LeaseGiven):
            assert self.machine.phase is Phase.OPEN
            assert answer.lease.client == client
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
        before = self._state()
        answer = self.machine.begin_commit(client, held.nonce, message, self.now)
        if isinstance(answer, CommitBegun):
            assert client == held.client
            assert self.machine.phase is Phase.OPEN
            self.running.append((answer, message))
        elif isinstance(answer, Refused):
            assert self._state() == before  # I8
        else:
            assert answer.receipt == self.acknowledged[held.nonce]
            assert answer.receipt.message_id == message
            assert self._state() == before

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        begun, message = self._take_running(data)
        committed = self.machine.finish_commit(begun.lease)
        assert committed.receipt.nonce not in self.acknowledged
        self.acknowledged[committed.receipt.nonce] = committed.receipt
        self.commits.append((committed, message))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        begun, _ = self._take_running(data)
        self.machine.fail_commit(begun.lease)

    @precondition(lambda self: self.commits)
    @rule(age=st.integers(0, 5))
    def repeat(self, age: int) -> None:
        committed, message = self.commits[-1 - age % len(self.commits)]
        receipt = committed.receipt
        if self.machine.receipt_of(receipt.client, receipt.nonce) is None:
            # Forgotten two attempts later: the store answers from then on.
            assert (receipt.round_number, receipt.attempt) < self.opened[-1]
            return
        again = self.machine.begin_commit(receipt.client, receipt.nonce, message, self.now)
        assert again == replace(committed, repeated=True)

    @rule(to_deadline=st.booleans())
    def pass_time(self, to_deadline: bool) -> None:
        wakeup = self.machine.next_wakeup
        self.now = max(self.now, wakeup) if to_deadline and wakeup else self.now + 1.0

    @rule()
    def tick(self) -> None:
        was_open = self.machine.phase is Phase.OPEN
        order = self.machine.tick(self.now)
        if isinstance(order, Close):
            self._check_close(order)
        elif isinstance(order, Abort):
            assert was_open
            self._settle(order.receipts)

    @precondition(lambda self: self.machine.phase is Phase.CLOSING)
    @rule()
    def release(self) -> None:
        self.released.append(self.machine.round_number)
        self.machine.released()

    @precondition(lambda self: self.machine.phase is Phase.CLOSING)
    @rule()
    def fail_to_close(self) -> None:
        number = self.machine.round_number
        self.aggregated = {pair for pair in self.aggregated if pair[0] != number}
        self.machine.abort("disk")

    @precondition(lambda self: self.machine.phase is Phase.GIVEN_UP)
    @rule()
    def resume(self) -> None:
        self.machine.resume()

    @precondition(lambda self: self.machine.phase is Phase.OPEN and not self.running)
    @rule(seed=st.integers(0, 1000))
    def restart(self, seed: int) -> None:
        machine = self.machine
        number, attempt, deadline = machine.round_number, machine.attempt, machine.next_wakeup
        assert machine.cohort is not None
        assert deadline is not None
        held = [
            receipt
            for receipt in self.acknowledged.values()
            if (receipt.round_number, receipt.attempt) == (number, attempt)
        ]
        source = RepeatableSource(seed + 5000)
        self.machine = RoundMachine(self.limits, source, round_number=number, attempt=attempt)
        self.machine.restore(machine.cohort.members, held, deadline)
        assert self.machine.committed_count == machine.committed_count

    @invariant()
    def attempts_and_rounds_only_rise(self) -> None:
        if hasattr(self, "commits"):
            assert self.opened == sorted(set(self.opened))  # I4
            assert self.released == list(range(1, len(self.released) + 1))

    @invariant()
    def no_more_commits_than_places(self) -> None:
        if hasattr(self, "commits") and self.machine.cohort is not None:
            begun = self.machine.committed_count + len(self.running)
            assert begun <= self.machine.cohort.places

    @invariant()
    def every_acknowledged_update_is_held_or_settled(self) -> None:
        if hasattr(self, "commits"):
            waiting = len(self.acknowledged) - len(self.settled)  # I2
            assert waiting == (self.machine.committed_count if self._takes_updates() else 0)

    def _takes_updates(self) -> bool:
        return self.machine.phase is Phase.OPEN

    def _check_close(self, close: Close) -> None:
        slots = [receipt.slot for receipt in close.receipts]
        assert slots == sorted(set(slots))
        assert self.limits.quorum <= len(slots) <= close.slot_count
        places = close.places()
        assert len(set(places.values())) == len(close.receipts)
        assert all(0 <= place < close.slot_count for place in places.values())
        for receipt in close.receipts:
            pair = (close.round_number, receipt.client)
            assert pair not in self.aggregated  # I1
            self.aggregated.add(pair)
        self._settle(close.receipts)

    def _settle(self, receipts: Sequence[Receipt]) -> None:
        for receipt in receipts:
            assert self.acknowledged[receipt.nonce] == receipt
            assert receipt.nonce not in self.settled
            self.settled.add(receipt.nonce)

    def _take_running(self, data: st.DataObject) -> tuple[CommitBegun, bytes]:
        return self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))

    def _state(self) -> tuple[object, ...]:
        machine = self.machine
        return (
            machine.phase,
            machine.round_number,
            machine.attempt,
            machine.committed_count,
            machine.leased_count,
            machine.next_wakeup,
        )


TestRoundsUnderAnyOrder = RoundsUnderAnyOrder.TestCase
TestRoundsUnderAnyOrder.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
