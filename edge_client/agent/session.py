"""Stay on one check-in stream: take leases as they are pushed, one at a time.

Only the end of a lease takes work away. Another order waits until the work in hand was answered:
that answer and the order travel apart, and may overtake each other.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from edge_client.agent.device import Device
from edge_client.agent.exit_status import NotServed
from edge_client.wire.refusal import RefusedError, UnreachableError
from edge_client.wire.refusal_lines import OTHER
from edge_client.wire.transport import Transport
from protos import federation_pb2 as wire
from protos.refusals import RefusalCode
from protos.version import VERSION

logger = logging.getLogger(__name__)

FAILED = "failed"
# How long a device stays away after a lease that broke: what broke it is likely to come again.
FAILED_WAIT_S = 60.0


@dataclass(frozen=True)
class Ended:
    """The end of a session, with the seconds to wait before the next check-in.

    Attributes:
        reason: ``finished`` when the run is over, ``served`` after one lease with ``once``,
            ``failed`` after one that broke in a way nobody thought of, ``policy`` when the device
            is needed elsewhere, ``renewal`` when its certificates are due, else the coordinator's
            reason.
        not_served: Why that one lease was not served; None if it was.
    """

    retry_after_s: float
    reason: str
    not_served: NotServed | None = None


class Session:
    """One stream, whose leases are served.

    Attributes:
        brought_orders: Whether the coordinator has pushed anything down the stream.
    """

    def __init__(self, device: Device, transport: Transport, *, once: bool) -> None:
        self.brought_orders = False
        self._device = device
        self._transport = transport
        self._once = once
        self._work: asyncio.Task[Ended] | None = None
        self._nonce = b""

    async def run(
        self,
        until_needed_elsewhere: Callable[[], Awaitable[None]],
        until_renewal: Callable[[], Awaitable[None]],
    ) -> Ended:
        """Serve leases until the session ends.

        When ``until_needed_elsewhere`` returns, a lease in hand is given up; when ``until_renewal``
        returns, it is served first.

        Raises:
            RefusedError: If the coordinator refuses the check-in.
            UnreachableError: If the connection breaks.
        """
        logger.info("checking in; work comes when a round has a place for this device")
        orders = self._transport.work_orders(_check_in(self._device))
        leave = asyncio.ensure_future(until_needed_elsewhere())
        renewal = asyncio.ensure_future(until_renewal())
        try:
            return await self._serve(orders, leave, renewal)
        finally:
            await _cancel(leave)
            await _cancel(renewal)
            await self._stop_work()
            await orders.aclose()

    async def _serve(
        self,
        orders: AsyncGenerator[wire.WorkOrder, None],
        leave: asyncio.Future[None],
        renewal: asyncio.Future[None],
    ) -> Ended:
        following = asyncio.ensure_future(anext(orders, None))
        try:
            while True:
                done = await self._first_of(following, leave, renewal)
                if self._work in done:
                    ended = self._leaving_after(self._finish_work())
                    if ended is not None:
                        return ended
                if leave in done:
                    leave.result()
                    return Ended(0.0, "policy")
                if renewal in done:
                    renewal.result()
                    return Ended(0.0, "renewal")
                if following in done:
                    ended = await self._obey(following.result(), leave)
                    if ended is not None:
                        return ended
                    following = asyncio.ensure_future(anext(orders, None))
        finally:
            await _cancel(following)

    async def _finish_first(self, leave: asyncio.Future[None]) -> Ended | None:
        """Wait for the work in hand; return how the session ends by it, or None if it goes on."""
        if self._work is None:
            return None
        waiting: set[asyncio.Future[Any]] = {self._work, leave}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not self._work.done():
            leave.result()
            return Ended(0.0, "policy")
        return self._leaving_after(self._finish_work())

    def _leaving_after(self, ended: Ended | None) -> Ended | None:
        """Return how the session ends with a lease: with ``once``, and where one broke."""
        leaves = ended is not None and (self._once or ended.reason == FAILED)
        return ended if leaves else None

    async def _first_of(
        self,
        following: asyncio.Future[wire.WorkOrder | None],
        leave: asyncio.Future[None],
        renewal: asyncio.Future[None],
    ) -> set[asyncio.Future[Any]]:
        """Wait for an order, the device's owner, and the end of the work; without work, renewal."""
        waiting: set[asyncio.Future[Any]] = {following, leave, self._work or renewal}
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return done

    async def _obey(
        self, order: wire.WorkOrder | None, leave: asyncio.Future[None]
    ) -> Ended | None:
        if order is None:
            raise UnreachableError("the coordinator closed the stream", is_network=True)
        self.brought_orders = True
        if order.HasField("lease_ended"):
            if order.lease_ended.nonce == self._nonce:
                await self._stop_work()
            return None
        ended = await self._finish_first(leave)
        if ended is not None:
            return ended
        if order.HasField("retry_after"):
            return await self._come_back(order.retry_after)
        self._nonce = order.lease.nonce
        self._work = asyncio.create_task(self._serve_lease(order.lease))
        return None

    async def _come_back(self, order: wire.RetryAfter) -> Ended:
        kept = self._device.folder.outbox().kept()
        if order.reason == "finished" and kept is not None:
            # No lease will come that would ask what became of it.
            from edge_client.agent.lease import settle

            await settle(kept, self._device, self._transport)
        return Ended(float(order.seconds), order.reason)

    def _finish_work(self) -> Ended | None:
        """Collect the finished lease; return what ends here with ``once``, None if it was lost."""
        work, self._work = self._work, None
        try:
            return None if work is None else work.result()
        except RefusedError as refusal:
            if refusal.is_fatal or refusal.code == RefusalCode.UNSEAL_FAILED:
                raise
            # The lease is lost, the stream is not: the next order may be a new lease.
            logger.warning("lease lost: %s", refusal)
            return None

    async def _serve_lease(self, lease: wire.Lease) -> Ended:
        # Loaded with the first lease: a device that waits for work knows no plans and no models.
        from edge_client.agent.lease import serve_lease

        try:
            return Ended(0.0, "served", await serve_lease(lease, self._device, self._transport))
        except (RefusedError, UnreachableError, OSError):
            raise
        except Exception:
            # One lease must not end the agent: the next plan may be one that this device runs.
            logger.exception("round %d: the lease failed unexpectedly", lease.round_number)
        await self._transport.refuse_plan(lease.nonce, OTHER)
        not_served = NotServed(OTHER, "the lease failed unexpectedly; the log says how")
        return Ended(FAILED_WAIT_S, FAILED, not_served)

    async def _stop_work(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            await _cancel(work)


def _check_in(device: Device) -> wire.CheckInRequest:
    return wire.CheckInRequest(
        software_version=VERSION,
        model_families=sorted(device.floor.model_families),
        device_time_ms=int(time.time() * 1000),
        lacks_personal=not device.folder.personal.current.exists(),
    )


async def _cancel(future: asyncio.Future[Any]) -> None:
    future.cancel()
    await asyncio.wait({future})
    if not future.cancelled():
        future.exception()  # looked at, so that asyncio does not report it as forgotten
