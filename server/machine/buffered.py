"""Run asynchronous rounds with a buffer, without clock, socket or disk.

A round is the making of one release. It opens on the newest release, takes the first
``cohort_size`` updates that come, K in [FedBuff], and closes. Devices that are still at work keep
their leases: their updates count in a later round, for less the older they are
(``server.config.buffered``). So a slow device holds nobody up, and the work of one within the
bound is not lost.

The phases and answers are those of ``server.machine.synchronous``, and so is what a driver may call
when. What differs:

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

from protos.refusals import RefusalCode
from server.config.buffered import BufferedSettings, StalenessError, checked_staleness
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
    Receipt,
    Refused,
)
from server.machine.cohort import Cohort, EntropySource
from server.machine.life import COME_BACK, IDLE_SECONDS, RoundLife, RoundStateError
from server.machine.nonces import NONCE_BYTES, NonceDraw
from server.machine.synchronous import RoundMachine


class BufferedMachine(RoundLife):
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
        super().__init__(settings, round_number, attempt)
        self._buffered: BufferedSettings = settings.buffered
        self._places: int = settings.cohort_size
        self._draw_nonce = draw_nonce or (lambda *_: source.bytes(NONCE_BYTES))
        self._deadline = math.inf
        self._is_overdue = False
        self._ticket = 0
        self._leases: dict[str, Lease] = {}
        self._lost: set[str] = set()
        self._declined: set[str] = set()
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

    @property
    def lacks_quorum(self) -> bool:
        """Return whether the open round is older than ``deadline_s`` and waits for its quorum."""
        is_short = self.committed_count < self._settings.quorum and not self._commits.running
        return self.phase is Phase.OPEN and self._is_overdue and is_short

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
            if (found := (receipt.round_number, receipt.attempt)) != here:
                raise RoundStateError(f"receipts must be of round and attempt {here}, got {found}")
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

    def awaits(self, client: str) -> bool:
        """Return whether the open round has a place for the client, which has not committed."""
        if self.phase is not Phase.OPEN:
            return False
        if client in self._leases:
            return True
        is_done = client in self._commits.clients or client in self._declined
        return not is_done and (self._has_free_lease or bool(self._away()))

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
        return self._close_with(self._places)

    def finish(self) -> None:
        """End the run, and every lease with it.

        Raises:
            RoundStateError: If a round is open or closing.
        """
        super().finish()
        self._end_all(RefusalCode.LATE, lambda _: False)

    def _begin(self, begun: CommitBegun, message_id: bytes) -> CommitBegun | Committed | Refused:
        if self.phase is not Phase.OPEN:
            return Refused(RefusalCode.BUFFER_CLOSED)
        answer = self._commits.begin(begun, message_id, self._places)
        # A full round has what it needs; the next one will take this update.
        is_full = answer == Refused(RefusalCode.ROUND_FULL)
        return Refused(RefusalCode.BUFFER_CLOSED) if is_full else answer

    def _count(self, lease: Lease) -> None:
        """Set the device free for other work."""
        self._leases.pop(lease.client, None)
        self._lost.discard(lease.client)

    def _retire(self, code: RefusalCode) -> None:
        super()._retire(code)
        if code is RefusalCode.WRONG_ROUND:
            # What is sealed for this attempt would open in no other.
            self._end_all(code, lambda lease: lease.round_number < self.round_number)
        else:
            oldest = self.round_number - self._buffered.max_staleness
            self._end_all(RefusalCode.STALE, lambda lease: lease.round_number >= oldest)

    def _open(self, deadline: float) -> None:
        self._deadline, self._is_overdue = deadline, False
        self._declined.clear()
        self.phase = Phase.OPEN

    def _has_room(self) -> bool:
        """Return whether there is a place for one more, taken from one that went away if needed."""
        if self._has_free_lease:
            return True
        away = self._away()
        if away:
            # The oldest work first: it would count least.
            self._end(away[0], RefusalCode.LEASE_REASSIGNED)
        return bool(away)

    @property
    def _has_free_lease(self) -> bool:
        return len(self._leases) < self._buffered.concurrency

    def _away(self) -> list[str]:
        """Return who went away and is not committing, the oldest lease first."""
        return [name for name in self._leases if name in self._lost - self._commits.running]

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
