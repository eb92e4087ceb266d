"""Open, close and abort rounds on disk, and take one up again after a restart."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from models.plan.plan import PlanKind
from models.plan.release_record import Metric
from models.tasks.metrics import Counts
from privacy.accounting.budget import BudgetExceededError
from privacy.accounting.onlookers import Epsilons
from privacy.noise.limited_counts import LimitedSum
from server.budget.noised_evaluations import NoisedEvaluations
from server.budget.round_gate import RoundGate
from server.coordinating.round_figures import figures_of_updates, figures_to_go_on
from server.devices.forgetting import forget_client
from server.downlink.attempt_in_hand import RoundInHand
from server.downlink.model_shelf import ModelShelf
from server.downlink.personal_shelf import PersonalShelf
from server.machine.answers import Abort, Close
from server.machine.rounds import RoundMachine
from server.records.attempts import OpenAttempt, abort_attempt, next_attempt, open_attempt
from server.records.failpoints import Failpoint
from server.records.patience import until_possible
from server.releases.judge import figures_of_devices
from server.releases.recovery import Recovered, recover
from server.releases.storage import Storage
from server.uplink.closing_rounds import NotClosedError, RoundCloser

_LOG = logging.getLogger(__name__)
_OTHER_TERMS = "the settings have changed its plan since it was opened; the round is tried again"
_PAST_CAP = "the settings have lowered rounds.cap below it since it was opened; the run is over"


class RoundKeeper:
    """The keeper of rounds, which makes durable what the round's machine orders."""

    def __init__(
        self,
        shelf: ModelShelf,
        personal: PersonalShelf,
        storage: Storage,
        *,
        closer: RoundCloser,
        gate: RoundGate,
        evaluations: NoisedEvaluations,
        helper_certificate: bytes = b"",
    ) -> None:
        """Serve one federation; call ``start`` before anything else.

        ``helper_certificate``, DER, is what devices seal the seeds of their masks to.
        """
        self._shelf = shelf
        self._personal = personal
        self._store, self._inbox, self._releases = storage.store, storage.inbox, storage.releases
        self._threads, self._failpoints = storage.threads, storage.failpoints
        self.closer = closer
        self.closing_s: float | None = None
        self.gate = gate
        self._evaluations = evaluations
        self._helper_certificate = helper_certificate
        self._closing = asyncio.Lock()

    async def start(self) -> Recovered:
        """Repair what a crash left, load the current model, and return where the run goes on.

        A round goes on only under the terms it was opened with, else it is tried again: updates for
        two plans cannot be summed, and the ledger must hold what a cohort's draw really costs.

        Raises:
            LedgerError: If the privacy ledger was changed, lost its end or belongs to another run.
            ReleaseError: If the files of a release are gone or damaged.
            OSError: If the disk is full.
        """

        def repair() -> Recovered:
            # Before anything is deleted that a newer store would know.
            self.gate.spent()
            recovered = recover(self._store, self._inbox, self._releases, now=time.time())
            self._shelf.load()
            return recovered

        recovered = await self._threads.run(repair)
        opened = recovered.open_attempt
        if opened is None:
            return recovered
        reason = await self._why_not_go_on(opened)
        if reason is None:
            return recovered
        return await self._threads.run(lambda: self._start_over(opened, reason))

    async def _why_not_go_on(self, opened: OpenAttempt) -> str | None:
        """Return which change of the settings ends an open attempt; None if nothing does."""
        if opened.round_number > self.gate.cap:
            return _PAST_CAP
        await self._shelf.grow(opened.round_number)
        terms = self._terms(opened.round_number, opened.members)
        return None if opened.terms_sha256 in (None, terms) else _OTHER_TERMS

    def _start_over(self, opened: OpenAttempt, reason: str) -> Recovered:
        number, attempt = opened.round_number, opened.attempt
        _LOG.warning("round %s, attempt %s: %s", number, attempt, reason)
        self._forget_attempt(number, attempt, reason)
        return Recovered(*next_attempt(self._store), None, ())

    def _terms(self, round_number: int, members: Sequence[str] | None) -> bytes:
        return self.gate.entries.terms_sha256(round_number, self._shelf.plan(members))

    async def announce(self, next_round: int, attempt: int) -> None:
        """Log what the run promises and will have spent.

        Raises:
            LedgerError: If the privacy ledger was changed or belongs to another run.
        """
        for line in await self._threads.run(lambda: self.gate.outlook(next_round, attempt)):
            _LOG.info("privacy: %s", line)

    async def admit(self, round_number: int, attempt: int) -> Epsilons | None:
        """Return ε after this attempt and its round's evaluation; None where nothing is promised.

        Raises:
            BudgetExceededError: If they would pass the budget.
            LedgerError: If the privacy ledger was changed or belongs to another run.
        """
        return await until_possible(
            f"round {round_number}",
            lambda: self._threads.run(lambda: self.gate.admit(round_number, attempt)),
        )

    async def population(self, round_number: int) -> list[str]:
        """Return the names of every device that may take part in this round, sorted."""
        return await until_possible(
            f"round {round_number}",
            lambda: self._threads.run(lambda: self.gate.population(round_number)),
        )

    async def shortage(self, round_number: int) -> str | None:
        """Return why this round cannot open with the enrolled devices; None if it can."""
        return await self._threads.run(lambda: self.gate.shortage(round_number))

    async def take_up(self, machine: RoundMachine, recovered: Recovered) -> RoundInHand | None:
        """Put the machine into the round that an earlier process had opened, if there is one.

        Raises:
            LedgerError: If the privacy ledger was changed or belongs to another run.
        """
        opened = recovered.open_attempt
        if opened is None:
            return None
        left_s = opened.left_s(time.time())
        machine.restore(
            opened.members,
            recovered.receipts,
            time.monotonic() + left_s,
            await self.population(opened.round_number),
        )
        return await self._in_hand(opened)

    async def open(
        self, round_number: int, attempt: int, members: Sequence[str] | None, remaining_s: float
    ) -> RoundInHand:
        """Record an attempt, with any ledger entry, and return the round with its sealed model.

        Raises:
            LedgerError: If the privacy ledger was written to meanwhile.
        """
        await self._shelf.grow(round_number)
        opened = replace(
            self._attempt(round_number, attempt, members, remaining_s),
            terms_sha256=self._terms(round_number, members),
        )

        def record() -> None:
            entry = self.gate.entries.of_attempt(round_number, attempt)
            open_attempt(self._store, opened, entry)

        await until_possible(
            f"the opening of round {round_number}", lambda: self._threads.run(record)
        )
        return await self._in_hand(opened)

    async def open_evaluation(self, deadline_s: float) -> RoundInHand:
        """Return the current model with a plan of kind ``evaluate``, for devices to measure."""
        # It starts from the model that the next round starts from, and shares its sealed form.
        next_round = self._shelf.current.round_number + 1
        return await self._in_hand(self._attempt(next_round, 0, None, deadline_s), "evaluate")

    async def measured(
        self, round_number: int, counts: list[Counts] | LimitedSum
    ) -> dict[str, Metric]:
        """Return an evaluation's figures; nothing if it is lost in its noise or over the budget.

        Raises:
            LedgerError: If the privacy ledger was changed or belongs to another run.
        """
        if isinstance(counts, list):
            return figures_of_devices(counts, of_words=self._shelf.has_words)
        try:
            figures: dict[str, Metric] = {
                **await until_possible(
                    f"the evaluation of round {round_number}",
                    lambda: self._threads.run(
                        lambda: self._evaluations.release(round_number, counts)
                    ),
                )
            }
        except BudgetExceededError as error:
            _LOG.error("round %s is not evaluated: %s", round_number, error)
            return {}
        if not figures:
            _LOG.warning("the evaluation of round %s is lost in its noise", round_number)
        return figures

    def has_embedding(self, client: str) -> bool:
        """Return whether a device needs to fit no embedding."""
        return self._personal.has_embedding(client)

    async def open_fits(self) -> RoundInHand | None:
        """Return what devices fit their own model with; None before there is a trained one."""
        current = self._shelf.current
        if current.round_number == 0:
            return None
        sealed = await self._shelf.sealed()
        kind = self._personal.fit_kind
        made = None
        if kind == "fit_embedding":
            made = await self._personal.sealed_hypernetwork(current)
        plan, round_number = self._shelf.plan(None, kind), current.round_number + 1
        return RoundInHand(
            plan=plan,
            round_number=round_number,
            attempt=0,
            base_sha256=current.sha256,
            opened_at=time.time(),
            deadline_ms=0,
            downlink=sealed.whole,
            moved=sealed.moved,
            coordinator=self._shelf.signer,
            plan_signature=await self._shelf.signed(plan, round_number, 0),
            hypernetwork=made,
        )

    async def adopt(self, client: str, embedding: Tensor) -> None:
        """Keep a device's own embedding durably, after any round that is being closed.

        Raises:
            ValueError: If the device has an embedding, or it does not fit.
            OSError: If the disk is full; nothing has changed.
        """
        async with self._closing:
            await self._shelf.finish()
            await self._personal.adopt(self._shelf.current, client, embedding)

    async def close(self, order: Close, in_hand: RoundInHand, refusals: Mapping[str, int]) -> None:
        """Sum a round and release its model; a full disk or a lack of descriptors is waited out.

        Raises:
            NotClosedError: If it could not be done; the text is for the log.
        """
        async with self._closing:
            await self._close(order, in_hand, refusals)

    async def _close(self, order: Close, in_hand: RoundInHand, refusals: Mapping[str, int]) -> None:
        self._failpoints.reach(Failpoint.CLOSING)
        try:
            # Asked again: settings may have changed since the round was opened.
            spent = await self.admit(order.round_number, order.attempt)
        except BudgetExceededError as error:
            _LOG.error("round %s cannot be closed: %s", order.round_number, error)
            raise NotClosedError("budget_exceeded: it would pass the privacy budget") from None
        base, started = self._shelf.current.parameters, time.monotonic()
        closed = await self.closer.close(order, in_hand, base)
        figures: dict[str, Metric] = {}
        if not self.gate.hides_figures:
            told = {} if self.gate.hides_refusals else refusals
            figures |= figures_of_updates(order, closed, told)
            figures["closing_s"] = self.closing_s = time.monotonic() - started
        figures |= figures_to_go_on(in_hand.plan, closed, spent)
        await self._shelf.release(
            closed.parameters,
            in_hand,
            figures,
            clear_up=lambda: self._inbox.clear(order.round_number, order.attempt),
        )

    async def forget(self, client: str) -> int:
        """Delete what is known of a device, after any running close; return its number of updates.

        Raises:
            UnknownClientError: If there is no such device.
            OSError: If the disk is full; ask again.
        """
        async with self._closing:
            deleted = await self._threads.run(
                lambda: forget_client(self._store, self._inbox, client, now=time.time())
            )
            await self._shelf.finish()
            await self._personal.forget(client)
        return deleted

    async def abort(self, order: Abort) -> None:
        """Record that an attempt ended without a model; its updates are deleted."""
        await until_possible(
            f"the end of round {order.round_number}",
            lambda: self._threads.run(
                lambda: self._forget_attempt(order.round_number, order.attempt, order.reason)
            ),
        )

    def _forget_attempt(self, round_number: int, attempt: int, reason: str) -> None:
        abort_attempt(self._store, round_number, attempt, reason, now=time.time())
        self._inbox.clear(round_number, attempt)

    def _attempt(
        self, round_number: int, attempt: int, members: Sequence[str] | None, remaining_s: float
    ) -> OpenAttempt:
        now = time.time()
        return OpenAttempt(
            round_number=round_number,
            attempt=attempt,
            members=None if members is None else tuple(members),
            base_sha256=self._shelf.current.sha256,
            opened_at=now,
            deadline_ms=round((now + remaining_s) * 1000),
        )

    async def _in_hand(self, opened: OpenAttempt, kind: PlanKind = "train") -> RoundInHand:
        sealed = await self._shelf.sealed()
        plan = self._shelf.plan(opened.members, kind)
        if kind == "train":
            self.closer.begin(plan)
        return RoundInHand(
            plan=plan,
            round_number=opened.round_number,
            attempt=opened.attempt,
            base_sha256=opened.base_sha256,
            opened_at=opened.opened_at,
            deadline_ms=opened.deadline_ms,
            downlink=sealed.whole,
            moved=sealed.moved,
            coordinator=self._shelf.signer,
            plan_signature=await self._shelf.signed(plan, opened.round_number, opened.attempt),
            generated=await self._personal.generated_parts(self._shelf.current),
            helper_certificate=self._helper_certificate if kind == "train" else b"",
        )
