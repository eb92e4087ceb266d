"""Take in a device's update: from the first chunk to the acknowledged commit.

An update that comes in one stream is opened while it arrives, if there is memory to spare. A commit
once begun runs to its end even if the device goes away: a repeated one gets the same answer.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from privacy.foundation.atomic_files import BytesLike, sync_file
from privacy.sealing.envelope import MessageContext
from protos import federation_pb2 as pb
from protos.refusals import RefusalCode
from server.devices.membership import Membership
from server.devices.paced_call import PacedCall
from server.devices.refused_calls import RefusedError, shortage_refusal
from server.devices.transfer_line import TransferLine
from server.devices.upload_piece import UploadPiece
from server.downlink.attempt_in_hand import RoundInHand
from server.machine.answers import CommitBegun, Committed, Lease, Refused
from server.machine.rounds import RoundMachine
from server.records.contributions import ContributionError, Verified, find_receipt
from server.records.failpoints import Failpoint
from server.releases.storage import Storage
from server.uplink.early_opening import EarlyOpening
from server.uplink.group_commit import GroupCommit
from server.uplink.receiving import LARGEST_CHUNK_BYTES, UploadDesk
from server.uplink.sealed_payloads import PayloadOpener, SealedUpdate

_LOG = logging.getLogger(__name__)
_ID_BYTES = 16
MOST_ARRIVING_BYTES = 32 << 20
"""Bytes of updates that may be on their way into memory at a time."""

COUNTED_AT_UPLOAD = frozenset(
    {
        RefusalCode.MALFORMED_UPDATE,
        RefusalCode.EXAMPLE_COUNT,
        RefusalCode.WRONG_SIZE,
        RefusalCode.CHUNK_SIZE,
    }
)
"""Refusals after which an honest device hands its lease back, under the same code."""


class Intake:
    """The uploads of the round in hand.

    Attributes:
        in_hand: The round that is open or closing; None before the first.
        refusals: Refused uploads that no round has told of yet, by code; no client is recorded.
    """

    def __init__(
        self,
        machine: RoundMachine,
        storage: Storage,
        *,
        uploads: UploadDesk,
        opener: PayloadOpener[Any],
        membership: Membership,
        changed: asyncio.Event,
    ) -> None:
        """Serve one coordinator; ``changed`` is set when the machine may have an order."""
        self.in_hand: RoundInHand | None = None
        self.refusals: Counter[str] = Counter()
        self._machine = machine
        self._store, self._group = storage.store, GroupCommit(storage)
        self._threads, self._failpoints = storage.threads, storage.failpoints
        self._uploads = uploads
        self._opener = opener
        self._membership = membership
        self._changed = changed
        # The nonce under which each client uploads.
        self._uploading: dict[str, bytes] = {}
        self._running: dict[tuple[bytes, bytes], asyncio.Task[Committed]] = {}
        self._checking = asyncio.Semaphore(opener.open_at_once)
        self._line = TransferLine(MOST_ARRIVING_BYTES)

    def lease_of(self, client: str, nonce: bytes) -> tuple[Lease, RoundInHand]:
        """Return the caller's live lease and its round.

        Raises:
            RefusedError: If the nonce is no live lease of the caller.
        """
        lease = self._machine.lease_of(client, nonce, time.monotonic())
        if isinstance(lease, Refused):
            raise RefusedError(lease.code, lease.text)
        in_hand = self.in_hand
        if in_hand is None:
            raise RefusedError(RefusalCode.NO_ROUND)
        return lease, in_hand

    @property
    def received_bytes(self) -> int:
        """Return the bytes of updates that were received since the start."""
        return self._uploads.received_bytes

    def end_round(self) -> None:
        """Drop what was uploaded and not committed under leases that have ended."""
        self._uploading.clear()
        self._uploads.sweep()

    def drop(self, client: str) -> None:
        """Drop what a client uploads under a lease that it has no more."""
        nonce = self._uploading.get(client)
        if nonce is None or any(nonce == committing for committing, _ in self._running):
            return
        if isinstance(self._machine.lease_of(client, nonce, time.monotonic()), Refused):
            del self._uploading[client]
            self._uploads.forget(nonce)

    def open(self, client: str, request: pb.OpenUploadRequest) -> pb.OpenUploadResponse:
        """Start an upload, or say where it stopped.

        Raises:
            RefusedError: If there is no such lease, the size is wrong, or the disk is full.
        """
        with self._counting():
            return self._open(client, request)

    def _open(self, client: str, request: pb.OpenUploadRequest) -> pb.OpenUploadResponse:
        receipt = self._machine.receipt_of(client, request.lease_nonce)
        if receipt is not None:
            if receipt.message_id != request.message_id:
                raise RefusedError(RefusalCode.DUPLICATE)
            return pb.OpenUploadResponse(offset=request.total_bytes, committed=True)
        lease, in_hand = self.lease_of(client, request.lease_nonce)
        if len(request.message_id) != _ID_BYTES:
            raise RefusedError(
                RefusalCode.WRONG_SIZE,
                f"message_id must have {_ID_BYTES} bytes, got {len(request.message_id)}",
            )
        try:
            in_hand.check_upload_size(request.total_bytes)
        except ValueError as error:
            raise RefusedError(RefusalCode.WRONG_SIZE, str(error)) from None
        self._uploading[client] = lease.nonce
        offset = self._uploads.open(lease.nonce, request.message_id, request.total_bytes)
        return pb.OpenUploadResponse(offset=offset)

    async def receive(self, client: str, pieces: AsyncIterator[UploadPiece]) -> int:
        """Append a stream of pieces to an open upload and return how many bytes it then holds.

        Raises:
            RefusedError: If there is no such lease, or as ``UploadDesk.receive``.
        """
        # Nothing is read before its turn: what a device sends meanwhile waits at its end.
        in_hand = self.in_hand
        most_bytes = LARGEST_CHUNK_BYTES if in_hand is None else in_hand.upload_bytes
        async with self._line.turn(most_bytes) as turn:
            with self._counting():
                first = await anext(aiter(pieces), None)
            if first is None:
                # Not counted: most likely the connection broke, and nobody hears this.
                raise RefusedError(RefusalCode.CHUNK_SIZE, "an upload must have at least one chunk")
            with self._counting():
                return await self._receive(client, first, pieces, turn)

    async def _receive(
        self, client: str, first: UploadPiece, pieces: AsyncIterator[UploadPiece], turn: PacedCall
    ) -> int:
        lease, in_hand = self.lease_of(client, first.lease_nonce)
        arriving = await self._arriving(lease, in_hand, first.offset)
        try:
            return await self._uploads.receive(
                lease.nonce,
                first.offset,
                self._data(client, first, pieces, turn),
                also=None if arriving is None else arriving.feed,
            )
        finally:
            if arriving is not None:
                arriving.close()

    async def _arriving(
        self, lease: Lease, in_hand: RoundInHand, offset: int
    ) -> EarlyOpening | None:
        """Return what opens an upload from its first byte on; None for the rest of one."""
        begun = self._uploads.beginning(lease.nonce, offset)
        if begun is None:
            return None
        return self._opener.arriving(await self._sealed(lease, in_hand, *begun))

    async def _sealed(
        self, lease: Lease, in_hand: RoundInHand, path: Path, message_id: bytes
    ) -> SealedUpdate:
        return SealedUpdate(
            path=path,
            context=await self._context(lease, in_hand),
            message_id=message_id,
            senders=await self._membership.signing_keys(lease.client),
            attempt=lease.attempt,
        )

    async def _data(
        self, client: str, first: UploadPiece, rest: AsyncIterator[UploadPiece], turn: PacedCall
    ) -> AsyncIterator[BytesLike]:
        turn.moved()
        yield first.take()
        async for piece in rest:
            turn.moved()
            self._failpoints.reach(Failpoint.MID_CHUNK)
            # Its place may have gone to another device since the first piece.
            self.lease_of(client, first.lease_nonce)
            yield piece.take()

    async def commit(self, client: str, request: pb.CommitUploadRequest) -> int:
        """Verify an upload, make it durable, count it, and return its round.

        Raises:
            RefusedError: If it cannot count; nothing has changed then.
        """
        with self._counting():
            return await self._commit(client, request)

    async def _commit(self, client: str, request: pb.CommitUploadRequest) -> int:
        key = (request.lease_nonce, request.message_id)
        task = self._running.get(key)
        if task is None:
            begun = self._machine.begin_commit(client, *key, time.monotonic())
            if isinstance(begun, Refused):
                return await self._earlier_commit(client, request, begun)
            if isinstance(begun, Committed):
                return begun.receipt.round_number
            task = asyncio.create_task(self._finish(begun, request))
            self._running[key] = task
            task.add_done_callback(lambda done: self._retire(key, done))
        # The device may go away; what it has asked for is finished all the same.
        committed = await asyncio.shield(task)
        if committed.receipt.client != client:
            raise RefusedError(RefusalCode.UNKNOWN_LEASE)
        return committed.receipt.round_number

    @contextmanager
    def _counting(self) -> Iterator[None]:
        try:
            yield
        except RefusedError as refused:
            self.refusals[refused.code.value] += 1
            raise

    async def _earlier_commit(
        self, client: str, request: pb.CommitUploadRequest, refused: Refused
    ) -> int:
        """Return the round that this very commit counted in long ago, or refuse it."""
        if refused.code is RefusalCode.UNKNOWN_LEASE:
            receipt = await self._threads.run(
                lambda: find_receipt(self._store, client, request.lease_nonce)
            )
            if receipt is not None and receipt.message_id == request.message_id:
                return receipt.round_number
        raise RefusedError(refused.code, refused.text)

    def _retire(self, key: tuple[bytes, bytes], done: asyncio.Task[Committed]) -> None:
        del self._running[key]
        failure = None if done.cancelled() else done.exception()
        if failure is not None and not isinstance(failure, RefusedError):
            _LOG.error("a commit failed: %s", failure)

    async def _finish(self, begun: CommitBegun, request: pb.CommitUploadRequest) -> Committed:
        is_durable = False
        try:
            await self._make_durable(begun, request.message_id, request.example_count)
            is_durable = True
        finally:
            if not is_durable:
                self._machine.fail_commit(begun.lease)
                self._changed.set()
        committed = self._machine.finish_commit(begun.lease)
        self._changed.set()
        return committed

    async def _make_durable(
        self, begun: CommitBegun, message_id: bytes, example_count: int
    ) -> None:
        lease = begun.lease
        _, in_hand = self.lease_of(lease.client, lease.nonce)
        kept_count = _checked_count(in_hand, example_count)
        path = self._uploads.completed(lease.nonce, message_id)
        sealed = await self._sealed(lease, in_hand, path, message_id)
        try:
            await self._verify_and_keep(sealed, lease, kept_count)
        except ContributionError as error:
            raise RefusedError(RefusalCode.DUPLICATE, str(error)) from None
        except OSError as error:
            raise (shortage_refusal(error) or error) from None
        finally:
            # Counted, or never to be opened, or perhaps moved away before the disk was full: in
            # no case may the device be told that these bytes are still held.
            self._uploads.forget(lease.nonce)

    async def _context(self, lease: Lease, in_hand: RoundInHand) -> MessageContext:
        """Return what the update must belong to; after a restart the base is made again."""
        return await self._threads.run(
            lambda: in_hand.uplink_context(lease.client, lease.slot, lease.nonce)
        )

    async def _verify_and_keep(
        self, sealed: SealedUpdate, lease: Lease, example_count: int | None
    ) -> None:
        # What will most likely be kept is flushed while it is opened.
        signing_sha256, _ = await asyncio.gather(
            self._check(sealed), self._threads.run(lambda: sync_file(sealed.path))
        )
        await self._group.keep(
            Verified(sealed.path, lease, sealed.message_id, signing_sha256, example_count)
        )

    async def _check(self, sealed: SealedUpdate) -> bytes:
        # No thread may wait for a buffer: those that write other uploads would run out.
        async with self._checking:
            return await self._threads.run(lambda: self._opener.check(sealed))


def _checked_count(in_hand: RoundInHand, example_count: int) -> int | None:
    """Return the example count to keep, capped by the plan; None under a guarantee."""
    if in_hand.plan.privacy.guarantees_privacy:
        if example_count:
            raise RefusedError(
                RefusalCode.EXAMPLE_COUNT,
                f"example_count must be 0 under a privacy guarantee, got {example_count}",
            )
        return None
    if example_count < 1:
        raise RefusedError(
            RefusalCode.EXAMPLE_COUNT, f"example_count must be >= 1, got {example_count}"
        )
    return min(example_count, in_hand.plan.training.example_cap)
