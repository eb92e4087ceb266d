"""Answer devices, one call at a time on the event loop; ``changed`` wakes the coordinator."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator

from protos import federation_pb2 as pb
from protos.refusals import RefusalCode
from server.budget.round_gate import hides_figures
from server.coordinating.work import Work
from server.devices.dispatcher import Dispatcher
from server.devices.membership import Membership
from server.devices.refused_calls import RefusedError
from server.devices.sessions import Session
from server.downlink.sealed_once import Downlink
from server.machine.answers import Refused
from server.records.operator_switch import OperatorSwitch
from server.uplink.acceptance import COUNTED_AT_UPLOAD

_LOG = logging.getLogger(__name__)


class DeviceDesk:
    """The devices of one federation, as they come, work and leave.

    Attributes:
        plan_refusals: Refused plans that no round has reported yet, by code.
        reported_refusals: Refused plans and uploads that closed rounds have reported, by code.
        sent_bytes: Bytes of models sent since the start.
    """

    def __init__(
        self,
        work: Work,
        dispatcher: Dispatcher,
        membership: Membership,
        switch: OperatorSwitch,
        changed: asyncio.Event,
    ) -> None:
        self.plan_refusals: Counter[str] = Counter()
        self.reported_refusals: Counter[str] = Counter()
        self.sent_bytes = 0
        self.intake = work.intake
        self._work = work
        self._dispatcher = dispatcher
        self._membership = membership
        self._switch = switch
        self.changed = changed
        self._told_refusal: int | None = None

    @property
    def refusals(self) -> Counter[str]:
        """Return all refused plans and uploads since the start, by code."""
        return self.reported_refusals + self.plan_refusals + self.intake.refusals

    def join(self, client: str, *, version: str = "", lacks_personal: bool = False) -> Session:
        """Open a device's stream and give it work, if there is any.

        Raises:
            RefusedError: If the coordinator is about to stop and expects nothing from this device.
        """
        if self._switch.is_draining and not self._work.machine.awaits(client):
            raise RefusedError(
                RefusalCode.DRAINING, "the coordinator is about to stop; check in again later"
            )
        if self._work.fits is not None:
            self._work.fits.note(client, lacks_personal=lacks_personal)
        session = self._dispatcher.open(client, version)
        self.changed.set()
        return session

    def leave(self, session: Session) -> None:
        """Note that a device's stream ended; its place may go to one that waits."""
        if self._dispatcher.close(session):
            self._work.machine.lease_lost(session.client)
            self._work.evaluation.leave(session.client)
            self._dispatcher.offer_all()

    async def model_pieces(self, client: str, request: pb.FetchModelRequest) -> Iterator[bytes]:
        """Return a sealed part of the model for the holder of a lease as encoded messages.

        Raises:
            RefusedError: If there is no such lease or part, or the offset is past the end.
        """
        lease, in_hand = self._work.lease_of(client, request.lease_nonce)
        part = in_hand.part(request)
        if part is None:
            raise RefusedError(
                RefusalCode.UNKNOWN_PART, f"a model of this plan has no part {request.part}"
            )
        if request.offset > part.total_bytes:
            raise RefusedError(
                RefusalCode.WRONG_OFFSET,
                f"offset must be <= {part.total_bytes}, got {request.offset}",
            )
        recipient = await self._membership.wrapping_key(client)
        if isinstance(part, Downlink):
            return part.pieces(recipient, request.offset)
        return await part.pieces(lease, recipient, request.offset)

    def refuse_plan(self, client: str, nonce: bytes, code: str) -> None:
        """Release a device from a plan that it will not run, and count its reason.

        Raises:
            RefusedError: If there is no such lease.
        """
        _, in_hand = self._work.lease_of(client, nonce)
        if code not in COUNTED_AT_UPLOAD:
            # A device chooses the text: only a short word may become the name of a figure.
            self.plan_refusals[code if code.isidentifier() and len(code) < 40 else "other"] += 1
        number = self._work.machine.round_number
        # Lines would count what no noise covers: there one a round has to do.
        if not hides_figures(in_hand.plan.privacy) or self._told_refusal != number:
            _LOG.warning("a device refused the plan of round %s", number)
        self._told_refusal = number
        self.drop(client)

    def report_evaluation(self, client: str, report: pb.ReportEvaluationRequest) -> None:
        """Take a device's counts.

        Raises:
            RefusedError: If the device was not asked, or the counts are impossible.
        """
        now = time.monotonic()
        if not isinstance(self._work.machine.lease_of(client, report.lease_nonce, now), Refused):
            raise RefusedError(RefusalCode.WRONG_PLAN_KIND, "this lease is for training")
        self._work.evaluation.report(client, report, now)
        self._dispatcher.done(client, report.lease_nonce)
        self.changed.set()

    async def commit(self, client: str, request: pb.CommitUploadRequest) -> int:
        """Count a device's update and return its round.

        Raises:
            RefusedError: If it cannot count; nothing has changed then.
        """
        round_number = await self.intake.commit(client, request)
        if self._work.fits is not None:
            self._work.fits.note(client, lacks_personal=False)
        return round_number

    async def take_embedding(self, client: str, request: pb.SendEmbeddingRequest) -> None:
        """Take the embedding that a device has fitted, and give the device its next work.

        Raises:
            RefusedError: As ``Fits.take``.
        """
        if self._work.fits is None:
            raise RefusedError(RefusalCode.UNKNOWN_LEASE)
        try:
            await self._work.fits.take(client, request, time.monotonic())
        except RefusedError as refused:
            if refused.code is RefusalCode.LATE:
                # Nothing else may ever happen that gives it another fit.
                self._dispatcher.offer(client, request.lease_nonce)
            raise
        self._dispatcher.offer(client, request.lease_nonce)

    def drop(self, client: str) -> None:
        """Wait no longer for a client, and give its place to another."""
        self._work.decline(client)
        self._dispatcher.done(client)
        self._dispatcher.offer_all()
        self.changed.set()
