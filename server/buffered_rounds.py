"""Run asynchronous rounds with a buffer, without clock, socket or disk.

A round is the making of one release. It opens on the newest release, takes the first
``cohort_size`` updates that come, K in [FedBuff], and closes. Devices that are still at work keep
their leases: their updates count in a later round, for less the older they are
(``server.buffered_settings``). So a slow device holds nobody up, and the work of one within the
bound is not lost.

The phases and answers are those of ``server.rounds``, and so is what a driver may call when. What
differs:

- A lease outlasts its round. It ends with its commit, after ``deadline_s``, when the device hands
  it back, when another takes the place of a device that went away, or when more than
  ``max_staleness`` releases were made since.
- At most ``concurrency`` leases are out at a time. A device counts at most once in every release.
- A slot is a ticket, drawn in the order in which leases are given and used once: updates are
  summed in the order of their slots whatever the order of their arrival, the oldest first.
- An update that comes between two rounds is told to come again in a second.
- A round that is older than ``deadline_s`` closes as soon as it has its quorum, and else waits:
  updates that came are not thrown away because others did not.

References:
    [FedBuff] Nguyen et al., AISTATS 2022, arXiv:2106.06639, Algorithm 1.
"""

import math
from collections.abc import Callable, Iterable, Sequence

from server.buffered_settings import BufferedSettings, StalenessError, checked_staleness
from server.cohort import Cohort, EntropySource
from server.commits import CommitBook
from server.lease_nonces import NONCE_BYTES, NonceDraw
from server.refusals import RefusalCode
from server.round_answers import (
    Abort,
    Close,
    ComeBack,
    ComeBackReason,
    CommitBegun,
    Committed,
    Lease,
    LeaseGiven,
    Phase,
    Receipt,
    Refused,
)
from server.round_settings import RoundSettings
from server.rounds import COME_BACK, IDLE_SECONDS, RoundMachine, RoundStateError


class BufferedMachine:
    """Decide about check-ins, commits and the end of every round.

    Attributes:
        phase: Where the run stands.
        round_number: Round that is open, closing, or next; from 1, never falls.
        attempt: How often this round was started over; from 0.
    """

    def __init__(
        self,
        settings: RoundSettings,
        source: EntropySource,
        *,
        round_number: int = 1,
        attempt: int = 0,
        draw_nonce: NonceDraw | None = None,
    ) -> None:
        """Start before a round, with nobody at work.

        Args:
            settings: How rounds run.
            source: Draws nonces.
            round_number: Next round, from 1; past the cap the run is finished.
            attempt: Next attempt of that round, from 0.
            draw_nonce: Draws the nonce of a lease; absent: fresh ones from ``source``.

        Raises:
            ValueError: If the settings are those of synchronous rounds.
        """
        if settings.buffered is None or settings.cohort_size is None:
            raise ValueError("buffered rounds need rounds.buffered and rounds.cohort_size")
        self.phase = Phase.FINISHED if round_number > settings.cap else Phase.WAITING
        self.round_number = round_number
        self.attempt = attempt
        self._settings = settings
        self._buffered: BufferedSettings = settings.buffered
        self._places: int = settings.cohort_size
        self._draw_nonce = draw_nonce or (lambda *_: source.bytes(NONCE_BYTES))
        self._failures = 0
        self._deadline = math.inf
        self._is_overdue = False
        self._ticket = 0
        self._leases: dict[str, Lease] = {}
        self._lost: set[str] = set()
        self._declined: set[str] = set()
        self._commits = CommitBook()
        self._former_commits = CommitBook()
        # Of each device the last lease that ended without a commit, and why.
        self._ended: dict[str, tuple[bytes, RefusalCode]] = {}

    @property
    def cohort(self) -> Cohort | None:
        """Return None: nobody is drawn in advance."""
        return None

    @property
    def next_wakeup(self) -> float | None:
        """Return when ``tick`` is due at the latest, or None while no round is open."""
        if self.phase is not Phase.OPEN:
            return None
        ends = [lease.deadline for lease in self._expiring()]
        return min(ends if self._is_overdue else [*ends, self._deadline], default=None)

    @property
    def deadline(self) -> float | None:
        """Return from when on the open round closes with its quorum, or None."""
        return self._deadline if self.phase is Phase.OPEN else None

    @property
    def committed_count(self) -> int:
        """Return how many updates the open or closing round holds."""
        return len(self._commits.receipts)

    @property
    def leased_count(self) -> int:
        """Return how many connected clients hold a lease."""
        return len(self._leases.keys() - self._lost)

    @property
    def contributors(self) -> set[str]:
        """Return the clients whose update the open or closing round holds."""
        return self._commits.clients

    @property
    def going_on(self) -> frozenset[bytes]:
        """Return the nonces of the leases that are out."""
        return frozenset(lease.nonce for lease in self._leases.values())

    @property
    def base_rounds(self) -> frozenset[int]:
        """Return the rounds whose leases are out."""
        return frozenset(lease.round_number for lease in self._leases.values())

    def open_round(self, population: Sequence[str], now: float) -> bool:
        """Open the next round, or return False when too few devices are enrolled.

        Args:
            population: Names of every client that is enrolled and not revoked.
            now: The time.

        Raises:
            RoundStateError: If the phase is not ``WAITING``.
        """
        self._require(Phase.WAITING)
        if len(population) < self._places:
            return False  # Each counts once: the buffer could never be full.
        self._open(now + self._settings.deadline_s)
        return True

    def restore(
        self,
        members: Sequence[str] | None,
        receipts: Iterable[Receipt],
        deadline: float,
        population: Sequence[str] | None = None,
    ) -> None:
        """Take up a round that a stopped process had opened; leases without a commit are gone.

        Args:
            members: Not needed: whoever was drawn, when rounds were not buffered yet, may come.
            receipts: What had been committed in this attempt.
            deadline: When the round may close with its quorum, by this process's clock.
            population: Not needed.

        Raises:
            RoundStateError: If the phase is not ``WAITING``, or a receipt is of another attempt or
                of a staleness that no update can have.
        """
        self._require(Phase.WAITING)
        held = {receipt.nonce: receipt for receipt in receipts}
        here = (self.round_number, self.attempt)
        for receipt in held.values():
            if (receipt.round_number, receipt.attempt) != here:
                raise RoundStateError(f"receipts must be of round and attempt {here}")
            try:
                checked_staleness(receipt.staleness)
            except StalenessError as error:
                raise RoundStateError(str(error)) from None
        self._open(deadline)
        self._commits.receipts.update(held)
        self._ticket = 1 + max((receipt.slot for receipt in held.values()), default=-1)

    def check_in(self, client: str, now: float) -> LeaseGiven | ComeBack:
        """Give the client a lease, the one it has if it has one, or say when to ask again."""
        self._expire(now)
        held = self._leases.get(client)
        if held is not None:
            self._lost.discard(client)
            return LeaseGiven(held)
        if self.phase is not Phase.OPEN:
            return ComeBack(COME_BACK.get(self.phase, ComeBackReason.NO_ROUND), IDLE_SECONDS)
        if client in self._commits.clients:
            reason = ComeBackReason.ALREADY_COMMITTED
        elif client in self._declined:
            reason = ComeBackReason.DECLINED
        elif self._has_room():
            return LeaseGiven(self._give(client, now))
        else:
            reason = ComeBackReason.ROUND_FULL
        return ComeBack(reason, max(1.0, self._deadline - now))

    def lease_lost(self, client: str) -> None:
        """Note that the client's stream ended; its place waits for it, or goes to another."""
        if client in self._leases:
            self._lost.add(client)

    def decline(self, client: str) -> None:
        """Note that the client hands its lease back and gets none in this round.

        A commit that is running or done stands.
        """
        if client not in self._commits.running | self._commits.clients:
            self._declined.add(client)
            self._end(client, RefusalCode.UNKNOWN_LEASE)

    def lease_of(self, client: str, nonce: bytes, now: float) -> Lease | Refused:
        """Return the client's lease of that nonce, or why the nonce is no good now."""
        self._expire(now)
        lease = self._leases.get(client)
        if lease is not None and lease.nonce == nonce:
            return lease
        ended, code = self._ended.get(client, (b"", RefusalCode.UNKNOWN_LEASE))
        return Refused(code if ended == nonce else RefusalCode.UNKNOWN_LEASE)

    def receipt_of(self, client: str, nonce: bytes) -> Receipt | None:
        """Return what the client committed under that nonce, in this attempt or the one before."""
        receipt = self._commits.receipts.get(nonce) or self._former_commits.receipts.get(nonce)
        return receipt if receipt is not None and receipt.client == client else None

    def begin_commit(
        self, client: str, nonce: bytes, message_id: bytes, now: float
    ) -> CommitBegun | Committed | Refused:
        """Reserve the client's contribution while the caller makes it durable.

        After ``CommitBegun`` the caller must call ``finish_commit`` or ``fail_commit``.
        """
        for book in (self._commits, self._former_commits):
            repeated = book.repeat(client, nonce, message_id)
            if repeated is not None:
                return repeated
        lease = self.lease_of(client, nonce, now)
        if isinstance(lease, Refused):
            return lease
        if self.phase is not Phase.OPEN:
            return Refused(RefusalCode.BUFFER_CLOSED)
        begun = CommitBegun(lease, self.round_number, self.attempt)
        answer = self._commits.begin(begun, message_id, self._places)
        if answer == Refused(RefusalCode.ROUND_FULL):
            # This release has what it needs; the next one will take it.
            return Refused(RefusalCode.BUFFER_CLOSED)
        return answer

    def finish_commit(self, lease: Lease) -> Committed:
        """Count the contribution that has become durable; its device is free for other work.

        Raises:
            RoundStateError: If no commit of that lease is running.
        """
        committed = self._commits.finish(lease)
        if committed is None:
            raise RoundStateError(f"no commit of {lease.client} is running")
        self._leases.pop(lease.client, None)
        self._lost.discard(lease.client)
        return committed

    def fail_commit(self, lease: Lease) -> None:
        """Forget a commit that did not become durable; the client may try again.

        Raises:
            RoundStateError: If no commit of that lease is running.
        """
        if not self._commits.fail(lease):
            raise RoundStateError(f"no commit of {lease.client} is running")

    def commit(
        self, client: str, nonce: bytes, message_id: bytes, now: float
    ) -> Committed | Refused:
        """Commit in one step, where nothing needs to become durable (simulation)."""
        begun = self.begin_commit(client, nonce, message_id, now)
        return self.finish_commit(begun.lease) if isinstance(begun, CommitBegun) else begun

    def tick(self, now: float) -> Close | Abort | None:
        """Say whether the round ends now; each order is given once.

        Call it after every commit, after ``decline``, and at ``next_wakeup``.
        """
        if self.phase is not Phase.OPEN:
            return None
        self._expire(now)
        self._is_overdue = now >= self._deadline
        needed = self._settings.quorum if self._is_overdue else self._places
        if self._commits.running or self.committed_count < needed:
            return None
        self.phase = Phase.CLOSING
        return Close(self.round_number, self.attempt, self._places, self._commits.in_slot_order())

    def abort(self, reason: str) -> Abort:
        """End the attempt without a model; the round is started over or given up.

        Args:
            reason: One line, kept with every update that expires.

        Raises:
            RoundStateError: If no round is open or closing, or a commit is running.
        """
        self._require(Phase.OPEN, Phase.CLOSING)
        if self._commits.running:
            raise RoundStateError("a round cannot be aborted while a commit is running")
        self._failures += 1
        gives_up = self._failures > self._settings.retry_limit
        abort = Abort(
            self.round_number, self.attempt, reason, self._commits.in_slot_order(), gives_up
        )
        self._former_commits, self._commits = self._commits, CommitBook()
        # What is sealed for this attempt would open in no other.
        self._end_all(RefusalCode.WRONG_ROUND, lambda lease: lease.round_number < self.round_number)
        self.attempt += 1
        self.phase = Phase.GIVEN_UP if gives_up else Phase.WAITING
        return abort

    def released(self) -> None:
        """Move on after the round's model is durable and published; end what is too old by now.

        Raises:
            RoundStateError: If the phase is not ``CLOSING``.
        """
        self._require(Phase.CLOSING)
        self._former_commits, self._commits = self._commits, CommitBook()
        self.round_number += 1
        self.attempt = 0
        self._failures = 0
        oldest = self.round_number - self._buffered.max_staleness
        self._end_all(RefusalCode.STALE, lambda lease: lease.round_number >= oldest)
        if self.round_number > self._settings.cap:
            self._finish()
        else:
            self.phase = Phase.WAITING

    def resume(self) -> None:
        """Allow a round that was given up to be tried again.

        Raises:
            RoundStateError: If the phase is not ``GIVEN_UP``.
        """
        self._require(Phase.GIVEN_UP)
        self._failures = 0
        self.phase = Phase.WAITING

    def finish(self) -> None:
        """End the run before its cap, for a convergence criterion.

        Raises:
            RoundStateError: If a round is open or closing.
        """
        self._require(Phase.WAITING, Phase.GIVEN_UP, Phase.FINISHED)
        self._finish()

    def _finish(self) -> None:
        self._end_all(RefusalCode.LATE, lambda _: False)
        self.phase = Phase.FINISHED

    def _require(self, *phases: Phase) -> None:
        if self.phase not in phases:
            allowed = " or ".join(phase.value for phase in phases)
            raise RoundStateError(f"phase must be {allowed}, got {self.phase.value}")

    def _open(self, deadline: float) -> None:
        self._deadline, self._is_overdue = deadline, False
        self._declined.clear()
        self.phase = Phase.OPEN

    def _has_room(self) -> bool:
        """Return whether there is a place for one more, taken from one that went away if needed."""
        if len(self._leases) < self._buffered.concurrency:
            return True
        away = [name for name in self._leases if name in self._lost - self._commits.running]
        if away:
            # The oldest work first: it would count least.
            self._end(away[0], RefusalCode.LEASE_REASSIGNED)
        return bool(away)

    def _give(self, client: str, now: float) -> Lease:
        slot, self._ticket = self._ticket, self._ticket + 1
        nonce = self._draw_nonce(self.round_number, self.attempt, client, slot)
        deadline = now + self._settings.deadline_s
        lease = Lease(nonce, client, self.round_number, self.attempt, slot, deadline)
        self._leases[client] = lease
        return lease

    def _expiring(self) -> list[Lease]:
        """Return the leases that end by time: those whose commit is running are waited for."""
        running = self._commits.running
        return [lease for client, lease in self._leases.items() if client not in running]

    def _expire(self, now: float) -> None:
        for lease in self._expiring():
            if lease.deadline <= now:
                self._end(lease.client, RefusalCode.LATE)

    def _end(self, client: str, code: RefusalCode) -> None:
        lease = self._leases.pop(client, None)
        self._lost.discard(client)
        if lease is not None:
            self._ended[client] = (lease.nonce, code)

    def _end_all(self, code: RefusalCode, stays: Callable[[Lease], bool]) -> None:
        for lease in list(self._leases.values()):
            if not stays(lease):
                self._end(lease.client, code)


RoundsMachine = RoundMachine | BufferedMachine
"""Either machine: whoever drives rounds asks both the same."""


def make_machine(
    settings: RoundSettings,
    source: EntropySource,
    *,
    round_number: int = 1,
    attempt: int = 0,
    draw_nonce: NonceDraw | None = None,
    sampled_places: int | None = None,
    limits_who_comes: bool = False,
) -> RoundsMachine:
    """Return the machine that the settings ask for; the arguments are those of ``RoundMachine``."""
    if settings.buffered is not None:
        return BufferedMachine(
            settings, source, round_number=round_number, attempt=attempt, draw_nonce=draw_nonce
        )
    return RoundMachine(
        settings,
        source,
        round_number=round_number,
        attempt=attempt,
        draw_nonce=draw_nonce,
        sampled_places=sampled_places,
        limits_who_comes=limits_who_comes,
    )
