"""Drive the rounds: the state machine on one side, devices, disk and clock on the other.

Decisions are made on the event loop, one step at a time, so no lock is needed; what takes time runs
in threads. Nothing polls: check-ins, commits, commands and deadlines wake the one task.
"""

import asyncio
import logging
import time
from collections.abc import Collection

from models.tasks.metrics import Counts
from privacy.accounting.budget import BudgetExceededError
from privacy.noise.limited_counts import LimitedSum
from protos import federation_pb2 as pb
from server.coordinating.desk import DeviceDesk
from server.coordinating.keeper import RoundKeeper
from server.coordinating.key_renewal import KeyRenewal
from server.coordinating.standing import PhaseClock, Standing
from server.coordinating.work import Work
from server.devices.dispatcher import Dispatcher
from server.devices.membership import Membership
from server.downlink.attempt_in_hand import RoundInHand
from server.downlink.model_shelf import ModelShelf
from server.machine.answers import Abort, Close, Phase
from server.machine.cohort import CohortOverflowError, PopulationTooLargeError
from server.records.operator_switch import OperatorSwitch
from server.uplink.closing_rounds import NotClosedError

_LOG = logging.getLogger(__name__)
_DRAINING_RETRY_S = 10


class Coordinator:
    """The coordinator of one federation: its rounds, and what its operator asks for."""

    def __init__(
        self,
        work: Work,
        desk: DeviceDesk,
        dispatcher: Dispatcher,
        *,
        shelf: ModelShelf,
        keeper: RoundKeeper,
        membership: Membership,
        renewal: KeyRenewal,
        switch: OperatorSwitch,
    ) -> None:
        self._work = work
        self._machine = work.machine
        self._intake = work.intake
        self._evaluation = work.evaluation
        self._fits = work.fits
        self._desk = desk
        self._dispatcher = dispatcher
        self._shelf = shelf
        self._keeper = keeper
        self._membership = membership
        self._renewal = renewal
        self._switch = switch
        self._changed = desk.changed
        self._told_short: int | None = None
        self._clock = PhaseClock(work.machine, time.monotonic())

    # What the operator does.

    async def revoke(self, client: str) -> None:
        """Withdraw a device's certificates and end its stream.

        Raises:
            RefusedError: If there is no such device.
        """
        await self._membership.revoke(client)
        self._dispatcher.expel(client)
        self._desk.drop(client)

    async def forget(self, client: str) -> int:
        """Revoke a device and delete what is known of it; return how many updates that were.

        Raises:
            RefusedError: If there is no such device.
        """
        await self.revoke(client)
        return await self._keeper.forget(client)

    def pause(self) -> None:
        """Open no new round until ``resume``, also after a restart."""
        self._switch.pause()

    def resume(self) -> None:
        """Open rounds again, also one that was given up."""
        self._switch.resume()
        if self._machine.phase is Phase.GIVEN_UP:
            self._machine.resume()
        self._changed.set()

    def drain(self) -> None:
        """Finish the running round, for which its devices may still come, then end ``run``."""
        self._switch.drain()
        self._changed.set()

    def standing(self) -> Standing:
        """Return where the run stands, by what lies in memory."""
        now, unix_now = time.monotonic(), time.time()
        self._clock.note(now)
        machine, renewal = self._machine, self._renewal
        deadline, due = machine.deadline, self._clock.due
        return Standing(
            released_rounds=self._shelf.current.round_number,
            round_number=machine.round_number,
            attempt=machine.attempt,
            due_at=None if due is None else unix_now + due - now,
            remaining_s=0.0 if deadline is None else max(0.0, deadline - now),
            phase=machine.phase,
            phase_seconds=dict(self._clock.seconds),
            is_paused=self._switch.is_paused,
            quorum=machine.quorum,
            connected=len(self._dispatcher),
            leased=machine.leased_count,
            committed=machine.committed_count,
            device_versions=self._dispatcher.versions,
            refusals=self._desk.refusals,
            received_bytes=self._intake.received_bytes,
            sent_bytes=self._desk.sent_bytes,
            closing_s=self._keeper.closing_s,
            spent=self._keeper.gate.newest,
            certificates_end_at=renewal.identity.ends_at,
            issuer_ends_at=renewal.issuer_ends_at,
        )

    async def enrolled(self) -> int:
        """Return how many devices may be drawn."""
        return await self._membership.population_size()

    async def status(self) -> pb.StatusResponse:
        """Return where the run stands; the admin service adds what never changes."""
        shortage, now = None, self.standing()
        # What tells how many devices were drawn is no operator's to show under a guarantee.
        hides = self._keeper.gate.hides_refusals
        if self._machine.phase is Phase.WAITING:
            shortage = await self._keeper.shortage(self._machine.round_number)
        return pb.StatusResponse(
            round_number=now.round_number,
            phase=now.phase.value,
            enrolled_clients=await self.enrolled(),
            connected_clients=now.connected,
            leased_clients=now.leased,
            committed_clients=now.committed,
            remaining_ms=round(now.remaining_s * 1000),
            paused=now.is_paused,
            guarantee=self._shelf.guarantee,
            personalisation=self._shelf.travel,
            growth=self._shelf.growth,
            shortage=shortage or "",
            spent="" if now.spent is None else now.spent.told,
            helper=await self._keeper.closer.helper_told(),
            refusals={} if hides else now.refusals,
            device_versions=now.device_versions,
            epsilons={} if now.spent is None else now.spent.by_onlooker,
            received_bytes=0 if hides else now.received_bytes,
            sent_bytes=0 if hides else now.sent_bytes,
        )

    # The rounds.

    async def run(self, restored: RoundInHand | None) -> None:
        """Run rounds until the coordinator is drained, from the restored one if there is one."""
        self._intake.in_hand = restored
        if restored is None:
            self._intake.end_round()
        await self._open_fits()
        if self._machine.phase is Phase.FINISHED:
            self._finish_if_over()
        while True:
            self._changed.clear()
            has_stepped = await self._step()
            self._clock.note(time.monotonic())
            if has_stepped:
                continue
            if self._switch.is_draining and self._machine.phase is not Phase.OPEN:
                break
            await self._wait()
        # The next process knows nothing of this one's leases: those of fits.
        self._dispatcher.end_leases("draining")
        self._dispatcher.dismiss_all("draining", _DRAINING_RETRY_S)
        await self._shelf.finish()

    async def _step(self) -> bool:
        if self._evaluation.in_hand is not None:
            counts = self._evaluation.tick(time.monotonic())
            if counts is not None:
                await self._end_evaluation(counts)
            return counts is not None
        if self._machine.phase is not Phase.OPEN and self._renewal.is_due:
            await self._renewal.renew()
            await self._open_fits()
        if self._machine.phase is Phase.WAITING:
            return await self._open_round()
        order = self._machine.tick(time.monotonic())
        if isinstance(order, Close):
            await self._close_round(order)
        elif isinstance(order, Abort):
            await self._abort_round(order)
        return order is not None

    async def _wait(self) -> None:
        """Sleep until something happens, a deadline passes or certificates are due."""
        wakeup = self._evaluation.next_wakeup or self._machine.next_wakeup
        left_s = None if wakeup is None else wakeup - time.monotonic()
        # Past the deadline only a running commit holds the round open, and its end wakes us.
        renewal_s = self._renewal.wait_s
        timeout_s = min(left_s, renewal_s) if left_s is not None and left_s > 0 else renewal_s
        try:
            # `wait_for` would swallow a Ctrl-C that comes with a change, up to Python 3.11.
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _open_round(self) -> bool:
        may_open = not (self._switch.is_paused or self._switch.is_draining)
        if not may_open or len(self._dispatcher) < self._machine.quorum:
            return False
        number = self._machine.round_number
        try:
            await self._keeper.admit(number, self._machine.attempt)
        except BudgetExceededError as error:
            _LOG.error("the run ends before round %s: %s", number, error)
            self._machine.finish()
            self._finish_if_over()
            return True
        population = await self._keeper.population(number)
        now = time.monotonic()
        try:
            if not self._machine.open_round(population, now):
                await self._tell_shortage(number)
                return False
        except CohortOverflowError as error:
            _LOG.warning("round %s is drawn again: %s", number, error)
            return True
        except PopulationTooLargeError as error:
            _LOG.error("paused before round %s: %s", number, error)
            self._switch.pause()
            return False
        self._clock.note(time.monotonic())
        # Until the new round's model is at hand, nobody gets a lease with the old one.
        self._intake.in_hand = None
        cohort, deadline = self._machine.cohort, self._machine.deadline
        self._intake.in_hand = await self._keeper.open(
            self._machine.round_number,
            self._machine.attempt,
            None if cohort is None else cohort.members,
            0.0 if deadline is None else deadline - now,
        )
        self._dispatcher.offer_all()
        return True

    async def _tell_shortage(self, round_number: int) -> None:
        """Log once why a round cannot open; every check-in tries it again."""
        if self._told_short == round_number:
            return
        why = await self._keeper.shortage(round_number)
        if why is not None:
            self._told_short = round_number
            _LOG.warning("round %s cannot open: %s", round_number, why)

    async def _close_round(self, order: Close) -> None:
        in_hand = self._intake.in_hand
        if in_hand is None:
            raise RuntimeError("a round must be in hand to be closed")
        self._clock.note(time.monotonic())
        contributors = {receipt.client for receipt in order.receipts}
        self._end_leases("the round closed", contributors)
        self._intake.end_round()
        of_plans, of_uploads = self._desk.plan_refusals.copy(), self._intake.refusals.copy()
        try:
            await self._keeper.close(order, in_hand, of_plans + of_uploads)
        except NotClosedError as error:
            await self._abort_round(self._machine.abort(str(error)))
            return
        # What was refused meanwhile is the next round's.
        self._desk.plan_refusals -= of_plans
        self._intake.refusals -= of_uploads
        self._desk.reported_refusals += of_plans + of_uploads
        self._machine.released()
        await self._open_fits()
        if self._evaluation.is_due(order.round_number):
            await self._begin_evaluation(contributors)
        self._finish_if_over()

    async def _abort_round(self, order: Abort) -> None:
        _LOG.warning("round %s, attempt %s: %s", order.round_number, order.attempt, order.reason)
        self._end_leases(order.reason)
        self._intake.end_round()
        await self._keeper.abort(order)

    async def _begin_evaluation(self, contributors: set[str]) -> None:
        if self._evaluation.draws_by_coins:
            candidates = await self._keeper.population(self._machine.round_number)
        else:
            candidates = [name for name in self._dispatcher.clients if name not in contributors]
        in_hand = await self._keeper.open_evaluation(self._evaluation.deadline_s)
        if self._evaluation.begin(candidates, in_hand, time.monotonic()):
            self._dispatcher.offer_all()

    async def _end_evaluation(self, counts: list[Counts] | LimitedSum) -> None:
        self._end_leases("the evaluation ended")
        number = self._machine.round_number - 1
        await self._shelf.observe(number, await self._keeper.measured(number, counts))
        self._finish_if_over()

    def _finish_if_over(self) -> None:
        if self._evaluation.in_hand is not None:
            return
        if self._shelf.has_converged:
            self._machine.finish()
            self._end_leases("the run is over")
        if self._machine.phase is Phase.FINISHED:
            # Everybody is told so, but those who can still fit a model of their own.
            self._work.is_over = True
            self._dispatcher.offer_all()

    async def _open_fits(self) -> None:
        """Let fits begin with the current model; those under way go on with theirs."""
        if self._fits is not None:
            self._fits.in_hand = await self._keeper.open_fits()

    def _end_leases(self, reason: str, finished: Collection[str] = ()) -> None:
        """End the leases of a round or an evaluation; fits go on, and what outlasts its round."""
        self._dispatcher.end_leases(reason, finished, self._work.going_on)
