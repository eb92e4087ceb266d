"""Run the rounds of a federation, without clock, socket or disk.

Coordinator and simulation drive this very class, so simulated and deployed rounds cannot differ in
who takes part, which slot a client has, or when a round closes.

``open_round`` fixes the cohort, ``check_in`` gives leases, ``begin_commit`` and ``finish_commit``
take updates, ``tick`` says when to close or abort, and ``released`` moves to the next round. An
update must be durable before it is acknowledged, so a round does not end between a commit's halves.
Times are seconds on any clock that only goes forward.
"""

from collections.abc import Iterable, Sequence

from protos.refusals import RefusalCode
from server.config.rounds import RoundSettings
from server.machine.answers import (
    Abort,
    Close,
    ComeBack,
    ComeBackReason,
    Lease,
    LeaseGiven,
    Phase,
    Receipt,
    Refused,
)
from server.machine.cohort import (
    Cohort,
    DrawnCohort,
    EntropySource,
    FirstComeCohort,
    PopulationTooLargeError,
    draw_cohort,
    sample_cohort,
)
from server.machine.leases import LeaseBook
from server.machine.life import COME_BACK, IDLE_SECONDS, RoundLife, RoundStateError
from server.machine.nonces import NONCE_BYTES, NonceDraw


class RoundMachine(RoundLife):
    """The decisions about check-ins, commits and the end of every round."""

    def __init__(
        self,
        settings: RoundSettings,
        source: EntropySource,
        *,
        round_number: int = 1,
        attempt: int = 0,
        draw_nonce: NonceDraw | None = None,
        sampled_places: int | None = None,
        limits_who_comes: bool = False,
    ) -> None:
        """Start before a round; past the cap the run is finished.

        Args:
            draw_nonce: Draws the nonce of a lease; absent: fresh ones from ``source``.
            sampled_places: Places M of a round whose cohort is ``sampled``, needed there.
            limits_who_comes: Whether a ``first-come`` round is open only to its opening's
                population.

        Raises:
            ValueError: If ``sampled_places`` is missing, or given for another selection.
        """
        if (settings.selection == "sampled") != (sampled_places is not None):
            raise ValueError("sampled_places must be given for sampled cohorts, and only there")
        super().__init__(settings, round_number, attempt)
        self._sampled_places = sampled_places
        self._limits_who_comes = limits_who_comes
        self._source = source
        self._draw_nonce = draw_nonce or (lambda *_: source.bytes(NONCE_BYTES))
        self._book: LeaseBook | None = None
        # As for commits, those of the last attempt alone.
        self._former_leases: dict[bytes, tuple[str, RefusalCode]] = {}

    @property
    def quorum(self) -> int:
        """Return the updates that a round needs, and the devices that must be there to open it."""
        return self._settings.quorum

    @property
    def cohort(self) -> Cohort | None:
        """Return who takes part in the open or closing round, or None."""
        return None if self._book is None else self._book.cohort

    @property
    def next_wakeup(self) -> float | None:
        """Return the open round's deadline, when ``tick`` is due at the latest, or None."""
        return self._book.deadline if self._book and self.phase is Phase.OPEN else None

    @property
    def deadline(self) -> float | None:
        """Return when the open round closes at the latest, or None."""
        return self.next_wakeup

    @property
    def leased_count(self) -> int:
        """Return how many connected clients hold a lease and have not committed."""
        present = self._book.present() if self._book else set()
        return len(present - self._commits.clients)

    def open_round(self, population: Sequence[str], now: float) -> bool:
        """Open the next round, or return False if too few clients may be drawn.

        Raises:
            CohortOverflowError: If more were drawn than there are places; no round is open.
            PopulationTooLargeError: If more are enrolled than ``population_size``.
            RoundStateError: If the phase is not ``WAITING``.
        """
        self._require(Phase.WAITING)
        cohort = self._draw(population)
        if cohort is None:
            return False
        self._open(cohort, now + self._settings.deadline_s)
        return True

    def restore(
        self,
        members: Sequence[str] | None,
        receipts: Iterable[Receipt],
        deadline: float,
        population: Sequence[str] | None = None,
    ) -> None:
        """Take up the round of a stopped process, without the leases that had no commit.

        ``members`` is None for ``first-come``; ``population`` may still come. The deadline is by
        this process's clock.

        Raises:
            RoundStateError: If the phase is not ``WAITING``, or a receipt is of another attempt.
        """
        self._require(Phase.WAITING)
        held = {receipt.nonce: receipt for receipt in receipts}
        here = (self.round_number, self.attempt)
        for receipt in held.values():
            if (found := (receipt.round_number, receipt.attempt)) != here:
                raise RoundStateError(f"receipts must be of round and attempt {here}, got {found}")
        size = self._settings.cohort_size_of(0)
        book = self._open(
            self._first_come(size, population if self._limits_who_comes else None)
            if members is None
            else DrawnCohort(members, self._sampled_places),
            deadline,
        )
        self._commits.receipts.update(held)
        for receipt in held.values():
            book.restore(receipt)

    def check_in(self, client: str, now: float) -> LeaseGiven | ComeBack:
        """Give the client its lease, the same one after a lost stream, or say when to ask again."""
        if self._book is None or self.phase is not Phase.OPEN:
            return ComeBack(COME_BACK.get(self.phase, ComeBackReason.NO_ROUND), IDLE_SECONDS)
        if now >= self._book.deadline:
            return ComeBack(ComeBackReason.CLOSING, 1.0)
        held = self._book.get(client)
        if held is not None and held.nonce in self._commits.receipts:
            reason = ComeBackReason.ALREADY_COMMITTED
        elif client in self._book.declined:
            reason = ComeBackReason.DECLINED
        else:
            lease = self._book.claim(client, self._commits.running)
            if lease is not None:
                return LeaseGiven(lease)
            outsider = self._book.cohort.members is not None
            reason = ComeBackReason.NOT_IN_COHORT if outsider else ComeBackReason.ROUND_FULL
        return ComeBack(reason, max(1.0, self._book.deadline - now))

    def awaits(self, client: str) -> bool:
        """Return whether the open round has a place for the client, which has not committed."""
        book, commits = self._book, self._commits
        if book is None or self.phase is not Phase.OPEN or client in book.declined:
            return False
        held = book.get(client)
        if held is not None and held.nonce in commits.receipts:
            return False
        return book.has_place_for(client, commits.running)

    def lease_lost(self, client: str) -> None:
        """Note that the client's stream ended; its place waits for it, or goes to another."""
        lease = self._book.get(client) if self._book else None
        if self._book and lease and lease.nonce not in self._commits.receipts:
            self._book.lose(client)

    def decline(self, client: str) -> None:
        """Wait no longer for a client (plan refused, revoked); a running or done commit stands."""
        if self._book is not None and not self._commits.holds(self._book.get(client)):
            self._book.decline(client)

    def lease_of(self, client: str, nonce: bytes, now: float) -> Lease | Refused:
        """Return the client's lease of that nonce, or why the nonce is no good now."""
        owner, code = self._former_leases.get(nonce, (None, RefusalCode.UNKNOWN_LEASE))
        if owner == client:
            return Refused(code)
        if self._book is None:
            return Refused(RefusalCode.UNKNOWN_LEASE)
        found = self._book.find(client, nonce)
        ended = self.phase is not Phase.OPEN or now >= self._book.deadline
        return Refused(RefusalCode.LATE) if isinstance(found, Lease) and ended else found

    def tick(self, now: float) -> Close | Abort | None:
        """Return the order to end the round, if it ends now; each order is given once.

        Call it after every commit, after ``decline``, and at ``next_wakeup``.
        """
        if self._book is None or self.phase is not Phase.OPEN or self._commits.running:
            return None
        if now < self._book.deadline:
            return self._close() if self._settings.close_early and self._is_complete() else None
        held, quorum = len(self._commits.receipts), self._settings.quorum
        # A sampled round closes whoever came: starting over would tell how few were drawn.
        if held >= quorum or self._sampled_places is not None:
            return self._close()
        return self.abort(f"quorum missed: {held} of {quorum} updates at the deadline")

    @property
    def _places(self) -> int:
        return self._book.cohort.places if self._book is not None else 0

    def _count(self, lease: Lease) -> None:
        if self._book is not None:
            self._book.keep(lease.client)

    def _draw(self, population: Sequence[str]) -> Cohort | None:
        settings = self._settings
        if self._sampled_places is not None:
            return self._sample(population, self._sampled_places)
        size = settings.cohort_size_of(len(population))
        if size > len(population) or size < settings.quorum:
            return None
        if settings.selection == "drawn":
            return draw_cohort(self._source, population, size)
        return self._first_come(size, population if self._limits_who_comes else None)

    def _sample(self, population: Sequence[str], places: int) -> Cohort:
        most = self._settings.population_size or 0
        if len(population) > most:
            raise PopulationTooLargeError(
                f"at most {most} devices may be enrolled, rounds.population_size, got "
                f"{len(population)}; revoke some, or begin a run for more"
            )
        return sample_cohort(
            self._source, population, self._settings.participation_rate or 0, places
        )

    def _first_come(self, size: int, allowed: Sequence[str] | None) -> FirstComeCohort:
        return FirstComeCohort(size, self._settings.lease_count_of(size), allowed)

    def _open(self, cohort: Cohort, deadline: float) -> LeaseBook:
        self._book = LeaseBook(cohort, self.round_number, self.attempt, deadline, self._draw_nonce)
        self.phase = Phase.OPEN
        return self._book

    def _is_complete(self) -> bool:
        awaited = self._places
        if self._book is not None and self._book.cohort.members is not None:
            awaited -= len(self._book.declined.intersection(self._book.cohort.members))
        return len(self._commits.receipts) >= max(awaited, self._settings.quorum)

    def _retire(self, code: RefusalCode) -> None:
        super()._retire(code)
        self._former_leases = {lease.nonce: (lease.client, code) for lease in self._book or ()}
        self._book = None
