"""Let a device that took part in no round fit what is its own: its embedding, or its tensors.

It sends back the fitted embedding, from which the model learns nothing, or only word that its own
tensors are fitted. A fit has a lease and a deadline of its own, goes on while rounds open and
close, and gives way to a round that draws its device.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from models.plan.plan import upload_schema
from models.vector.codec import CodecError, decode, payload_size
from privacy.identities.certificates import CertifiedKey
from privacy.identities.party import Identity
from privacy.sealing.envelope import UnsealError, open_sealed
from protos import federation_pb2 as pb
from protos.refusals import RefusalCode
from server.devices.refused_calls import RefusedError, shortage_refusal
from server.downlink.attempt_in_hand import RoundInHand
from server.machine.answers import Lease

_NONCE_BYTES = 16
_LOG = logging.getLogger(__name__)


class Fits:
    """The fits that are under way; ``in_hand`` is what new ones get, None if none can begin."""

    def __init__(
        self,
        deadline_s: float,
        draw: Callable[[int], bytes],
        identity: Identity,
        *,
        has_embedding: Callable[[str], bool] | None,
        keep: Callable[[str, Tensor], Awaitable[None]],
        signing_keys: Callable[[str], Awaitable[Sequence[CertifiedKey]]],
    ) -> None:
        """Start with no fit under way.

        Args:
            draw: Draws that many random bytes.
            identity: The coordinator, to whom embeddings are sealed.
            has_embedding: Whether a device needs no fit; None where devices keep fitted tensors.
            keep: Keeps an embedding durably; raises ValueError if it does not fit or the device has
                one, OSError if the disk is full.
            signing_keys: Returns the keys of a device, any of which may have signed.
        """
        self.in_hand: RoundInHand | None = None
        self._deadline_s = deadline_s
        self._draw = draw
        self._identity = identity
        self._running: dict[str, tuple[Lease, RoundInHand]] = {}
        self._done: dict[str, bytes] = {}
        self._declined: set[str] = set()
        self._has_embedding = has_embedding
        self._without_personal: set[str] = set()
        self._keep = keep
        self._signing_keys = signing_keys
        self._arriving: dict[tuple[str, bytes], asyncio.Task[None]] = {}

    def take_identity(self, identity: Identity) -> None:
        """Open with renewed keys from now on; the wrapping key before them opens too."""
        self._identity = identity

    @property
    def nonces(self) -> set[bytes]:
        """Return the leases of the fits that are under way."""
        return {lease.nonce for lease, _ in self._running.values()}

    def note(self, client: str, *, lacks_personal: bool) -> None:
        """Note whether a device has a model of its own, as it says or as its update shows."""
        if lacks_personal:
            self._without_personal.add(client)
        else:
            self._without_personal.discard(client)

    def work_for(self, client: str, now: float, wall_ms: int) -> pb.WorkOrder | None:
        """Return an order to fit, or None; ``wall_ms`` is milliseconds since 1970 UTC."""
        if not self._is_needed_by(client):
            return None
        running = self._running.get(client)
        if running is None or running[0].deadline <= now:
            if self.in_hand is None or client in self._declined:
                return None
            running = self._running[client] = self._begin(client, self.in_hand, now, wall_ms)
        lease, in_hand = running
        return in_hand.work_order(lease, now)

    def lease_of(self, client: str, nonce: bytes, now: float) -> tuple[Lease, RoundInHand] | None:
        """Return a device's fit and what it works with; None if the nonce is of no fit of its own.

        Raises:
            RefusedError: If the fit has passed its deadline.
        """
        running = self._running.get(client)
        if running is None or running[0].nonce != nonce:
            return None
        if running[0].deadline <= now:
            raise RefusedError(RefusalCode.LATE, "the fit's time is over; check in for another")
        return running

    async def take(self, client: str, request: pb.SendEmbeddingRequest, now: float) -> None:
        """Keep a fitted embedding durably and end its fit; a repeated request changes nothing.

        Raises:
            RefusedError: If there is no such fit, the embedding does not open or fit, or the device
                has one by now.
        """
        key = (client, request.lease_nonce)
        task = self._arriving.get(key)
        if task is None:
            if self._done.get(client) == request.lease_nonce:
                return  # The first answer was lost on its way.
            running = self._running.get(client)
            # What stays on a device counts there; it is never too late to hear of it.
            is_kept = running is not None and running[1].plan.kind == "fit_personal"
            fit = self.lease_of(client, request.lease_nonce, 0.0 if is_kept else now)
            if fit is None:
                raise RefusedError(RefusalCode.UNKNOWN_LEASE)
            task = self._arriving[key] = asyncio.create_task(self._finish(client, fit, request))
            task.add_done_callback(lambda done: self._retire(key, done))
        # The device may go away; what it has asked for is finished all the same.
        await asyncio.shield(task)

    async def _finish(
        self, client: str, fit: tuple[Lease, RoundInHand], request: pb.SendEmbeddingRequest
    ) -> None:
        senders = await self._signing_keys(client)
        embedding = await asyncio.to_thread(self._open, fit, request, senders)
        try:
            if embedding is not None:
                await self._keep(client, embedding)
        except ValueError as error:
            raise RefusedError(RefusalCode.DUPLICATE, str(error)) from None
        except OSError as error:
            raise (shortage_refusal(error) or error) from None
        self._without_personal.discard(client)
        self._running.pop(client, None)
        self._done[client] = request.lease_nonce
        _LOG.info("%s has fitted a model of its own", client)

    def _retire(self, key: tuple[str, bytes], done: asyncio.Task[None]) -> None:
        del self._arriving[key]
        failure = None if done.cancelled() else done.exception()
        if failure is not None and not isinstance(failure, RefusedError):
            _LOG.error("an embedding could not be kept: %s", failure)

    def _open(
        self,
        fit: tuple[Lease, RoundInHand],
        request: pb.SendEmbeddingRequest,
        senders: Sequence[CertifiedKey],
    ) -> Tensor | None:
        """Return the sealed embedding; None if the device keeps its fitted tensors."""
        lease, in_hand = fit
        if in_hand.plan.kind == "fit_personal":
            _check_empty(request)
            return None
        schema = upload_schema(in_hand.plan)
        for sender in senders:
            try:
                payload = open_sealed(
                    [request.sealed],
                    in_hand.uplink_context(lease.client, lease.slot, lease.nonce),
                    payload_bytes=payload_size(schema),
                    recipient=self._identity,
                    sender=sender,
                )
                return torch.tensor(decode(schema, payload))
            except UnsealError:
                continue
            except CodecError as error:
                raise RefusedError(RefusalCode.MALFORMED_UPDATE, str(error)) from None
        raise RefusedError(
            RefusalCode.UNSEAL_FAILED, "the sealed embedding could not be opened; fit again"
        )

    def end(self, client: str) -> None:
        """Note that a device was drawn for a round, which gives it a model of its own too."""
        self._running.pop(client, None)

    def decline(self, client: str) -> None:
        """Note that a device will not fit; it is not asked again while this process lasts."""
        if self._running.pop(client, None) is not None:
            self._declined.add(client)

    def _is_needed_by(self, client: str) -> bool:
        if self._has_embedding is None:
            return client in self._without_personal
        return not self._has_embedding(client)

    def _begin(
        self, client: str, in_hand: RoundInHand, now: float, wall_ms: int
    ) -> tuple[Lease, RoundInHand]:
        lease = Lease(
            nonce=self._draw(_NONCE_BYTES),
            client=client,
            round_number=in_hand.round_number,
            attempt=0,
            slot=0,
            deadline=now + self._deadline_s,
        )
        return lease, replace(in_hand, deadline_ms=wall_ms + round(self._deadline_s * 1000))


def _check_empty(request: pb.SendEmbeddingRequest) -> None:
    if request.sealed:
        raise RefusedError(
            RefusalCode.MALFORMED_UPDATE,
            f"{len(request.sealed)} bytes came of a fit that sends nothing",
        )
