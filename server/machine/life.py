"""The life of a round: its phases, its attempts, and the answers to commits.

A round goes ``WAITING -> OPEN -> CLOSING -> WAITING``. ``server.machine.rounds`` builds on this: it
decides which clients take part and when the round ends.
"""

from abc import ABC, abstractmethod

from protos.refusals import RefusalCode
from server.config.rounds import RoundSettings
from server.machine.answers import (
    Abort,
    Close,
    ComeBackReason,
    CommitBegun,
    Committed,
    Lease,
    Phase,
    Receipt,
    Refused,
)
from server.machine.commits import CommitBook

IDLE_SECONDS = 60.0
"""When to ask again if nothing is known, in seconds."""
COME_BACK = {
    Phase.WAITING: ComeBackReason.NO_ROUND,
    Phase.CLOSING: ComeBackReason.CLOSING,
    Phase.GIVEN_UP: ComeBackReason.GIVEN_UP,
    Phase.FINISHED: ComeBackReason.FINISHED,
}
"""Why nobody gets a lease in a phase."""


class RoundStateError(RuntimeError):
    """Raised when the driver asks for a step that the phase does not allow."""


class RoundLife(ABC):
    """The phase of a run, and what was committed in this attempt and the one before."""

    def __init__(self, settings: RoundSettings, round_number: int, attempt: int) -> None:
        self.phase = Phase.FINISHED if round_number > settings.cap else Phase.WAITING
        self.round_number = round_number
        self.attempt = attempt
        self._settings = settings
        self._failures = 0
        self._commits = CommitBook()
        # What the last attempt left behind: the same answer to a repeated commit, and the right
        # refusal to a late one. Only one attempt is kept, so memory does not grow with the run.
        self._former_commits = CommitBook()

    @property
    def committed_count(self) -> int:
        """Return how many updates the open or closing round holds."""
        return len(self._commits.receipts)

    def receipt_of(self, client: str, nonce: bytes) -> Receipt | None:
        """Return what the client committed under that nonce, in this attempt or the one before."""
        receipt = self._commits.receipts.get(nonce) or self._former_commits.receipts.get(nonce)
        return receipt if receipt is not None and receipt.client == client else None

    @abstractmethod
    def lease_of(self, client: str, nonce: bytes, now: float) -> Lease | Refused:
        """Return the client's lease of that nonce, or why the nonce is no good now."""

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
        return self._commits.begin(CommitBegun(lease), message_id, self._places)

    def finish_commit(self, lease: Lease) -> Committed:
        """Count the contribution that has become durable.

        Raises:
            RoundStateError: If no commit of that lease is running.
        """
        committed = self._commits.finish(lease)
        if committed is None:
            raise RoundStateError(f"no commit of {lease.client} is running")
        self._count(lease)
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

    def abort(self, reason: str) -> Abort:
        """End the attempt without a model; the round is started over or given up.

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
        self._retire(RefusalCode.WRONG_ROUND)
        self.attempt += 1
        self.phase = Phase.GIVEN_UP if gives_up else Phase.WAITING
        return abort

    def released(self) -> None:
        """Move on after the round's model is durable and published.

        Raises:
            RoundStateError: If the phase is not ``CLOSING``.
        """
        self._require(Phase.CLOSING)
        self.round_number += 1
        self.attempt = 0
        self._failures = 0
        self._retire(RefusalCode.LATE)
        self.phase = Phase.WAITING
        if self.round_number > self._settings.cap:
            self.finish()

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
        self.phase = Phase.FINISHED

    @property
    @abstractmethod
    def _places(self) -> int:
        """Return how many updates the round takes."""

    @abstractmethod
    def _count(self, lease: Lease) -> None:
        """Take note of a contribution that has become durable."""

    def _retire(self, code: RefusalCode) -> None:
        """Keep this attempt's answers for those who come late, and forget the rest."""
        self._former_commits, self._commits = self._commits, CommitBook()

    def _close(self) -> Close:
        """End an open round; its model is made next."""
        self.phase = Phase.CLOSING
        receipts = self._commits.in_slot_order()
        return Close(self.round_number, self.attempt, self._places, receipts)

    def _require(self, *phases: Phase) -> None:
        if self.phase not in phases:
            allowed = " or ".join(phase.value for phase in phases)
            raise RoundStateError(f"phase must be {allowed}, got {self.phase.value}")
