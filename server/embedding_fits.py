"""Let a device that took part in no round fit the one thing that is its own: its embedding.

Such a device gets the shared parameters and the hypernetwork, fits its embedding to its own
examples in one check-in, and sends back those few numbers alone. Nothing of the model is learnt
from them. A fit has a lease of its own, beside the rounds: it ends at its own deadline, goes on
while rounds open and close, and gives way where its device is drawn for one.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from models.codec import CodecError, decode, payload_size
from models.plan import upload_schema
from privacy.certificates import CertifiedKey
from privacy.envelope import UnsealError, open_sealed
from privacy.identity import Identity
from protos import federation_pb2 as pb
from protos.refusals import RefusalCode
from server.answering import RefusedError
from server.round_answers import Lease
from server.round_in_hand import RoundInHand

_NONCE_BYTES = 16


class EmbeddingFits:
    """Hold the fits that are under way.

    Attributes:
        in_hand: What the next device fits with; None where no fit can begin.
    """

    def __init__(self, deadline_s: float, draw: Callable[[int], bytes], identity: Identity) -> None:
        """Start with no fit under way.

        Args:
            deadline_s: Seconds that a device has.
            draw: Draws that many random bytes.
            identity: The coordinator, to whom embeddings are sealed.
        """
        self.in_hand: RoundInHand | None = None
        self._deadline_s = deadline_s
        self._draw = draw
        self._identity = identity
        self._running: dict[str, tuple[Lease, RoundInHand]] = {}
        self._done: dict[str, bytes] = {}
        self._declined: set[str] = set()

    def take_identity(self, identity: Identity) -> None:
        """Open with renewed keys from now on; the wrapping key before them opens too."""
        self._identity = identity

    @property
    def nonces(self) -> set[bytes]:
        """Return the leases of the fits that are under way."""
        return {lease.nonce for lease, _ in self._running.values()}

    def work_for(self, client: str, now: float, wall_ms: int) -> pb.WorkOrder | None:
        """Return the order by which a device without an embedding fits one, or None.

        Args:
            client: A device without an embedding, for which no round has work now.
            now: Seconds on the coordinator's clock.
            wall_ms: Milliseconds since 1970 UTC.
        """
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

    def open(
        self,
        fit: tuple[Lease, RoundInHand],
        request: pb.SendEmbeddingRequest,
        senders: Sequence[CertifiedKey],
    ) -> Tensor:
        """Return the embedding that a device has sealed, float32, shape ``(embedding_size,)``.

        Args:
            fit: The device's fit, as ``lease_of`` returned it.
            request: What it sent.
            senders: Signing keys of the device, any of which may have signed it.

        Raises:
            RefusedError: If it does not open, does not fit, or is not finite.
        """
        lease, in_hand = fit
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
        """Note that a device was drawn for a round, which gives it an embedding too."""
        self._running.pop(client, None)

    def finish(self, client: str) -> None:
        """Note that a device's embedding is kept."""
        running = self._running.pop(client, None)
        if running is not None:
            self._done[client] = running[0].nonce

    def is_done(self, client: str, nonce: bytes) -> bool:
        """Return whether this very fit is kept already."""
        return self._done.get(client) == nonce

    def decline(self, client: str) -> None:
        """Note that a device will not fit; it is not asked again while this process lasts."""
        if self._running.pop(client, None) is not None:
            self._declined.add(client)

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
