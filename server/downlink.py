"""Hold a round's sealed parameters, encrypted once, for every device of the cohort.

Only the slip in front differs from device to device: the content key wrapped for it. The body is
kept as the messages that go down the wire, so that serving one more device copies nothing.
"""

from collections.abc import Iterator
from typing import Self

from privacy.atomic import BytesLike
from privacy.certificates import CertifiedKey
from privacy.envelope import Direction, MessageContext, SealedBody, seal_body, sealed_bytes
from privacy.identity import Identity
from protos import federation_pb2 as pb

# One body serves the whole cohort, so it is bound to no slot, lease or deadline.
_NO_NONCE = bytes(16)


class Downlink:
    """Hold one round's sealed parameters.

    Attributes:
        total_bytes: Size of the whole message for one device, slip included.
    """

    def __init__(self, body: SealedBody) -> None:
        """Encrypt the body; takes the time to encrypt a model."""
        self.total_bytes = sealed_bytes(body.payload_bytes)
        self._body = body
        # The sizes stand beside the messages: a look at ``data`` would copy it.
        self._pieces = [(len(piece), pb.ModelChunk(data=piece)) for piece in body.chunks()]

    @classmethod
    def seal(
        cls,
        payload: BytesLike,
        *,
        run: bytes,
        round_number: int,
        base_sha256: bytes,
        schema_sha256: bytes,
        sender: Identity,
    ) -> Self:
        """Sign and encrypt a round's parameters.

        Args:
            payload: Parameters as ``models.codec`` wrote them.
            run: Identifier of the run, 16 bytes.
            round_number: Round, from 1.
            base_sha256: Digest of the flat parameters.
            schema_sha256: Digest of their schema.
            sender: The coordinator.
        """
        context = MessageContext(
            direction=Direction.DOWNLINK,
            run=run,
            round_number=round_number,
            slot=0,
            lease_nonce=_NO_NONCE,
            base_sha256=base_sha256,
            schema_sha256=schema_sha256,
            deadline_ms=0,
        )
        return cls(seal_body(payload, context, sender=sender))

    def pieces(self, recipient: CertifiedKey, offset: int) -> Iterator[pb.ModelChunk]:
        """Yield the message for one device from an offset on, in pieces of about 1 MiB.

        Args:
            recipient: The device's wrapping key.
            offset: First byte wanted, from 0 up to ``total_bytes``.
        """
        slip = self._body.for_recipient(recipient)
        for size, piece in ((len(slip), pb.ModelChunk(data=slip)), *self._pieces):
            if offset >= size:
                offset -= size
                continue
            yield piece if offset == 0 else pb.ModelChunk(data=piece.data[offset:])
            offset = 0
