"""Hold a round's sealed parameters, encrypted once, for every device of the cohort.

Only the slip in front differs: the content key wrapped for a device. Serving one copies nothing.
"""

from collections.abc import Iterator
from typing import Self

from privacy.foundation.atomic_files import BytesLike
from privacy.identities.certificates import CertifiedKey
from privacy.identities.party import Identity
from privacy.sealing.envelope import (
    NO_NONCE,
    Direction,
    MessageContext,
    SealedBody,
    seal_body,
    sealed_bytes,
)
from protos import federation_pb2 as pb
from protos.data_chunks import PIECE_BYTES, start_of


class Downlink:
    """One round's sealed parameters; ``total_bytes`` count one device's message, slip included."""

    def __init__(self, body: SealedBody) -> None:
        """Encrypt the body; takes the time to encrypt a model."""
        self.total_bytes = sealed_bytes(body.payload_bytes)
        self._body = body
        self._messages = [message for chunk in body.views() for message in _messages(chunk)]
        self._slips: dict[bytes, bytes] = {}

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
        """Sign and encrypt a round's encoded parameters; the run's identifier has 16 bytes."""
        context = MessageContext(
            direction=Direction.DOWNLINK,
            run=run,
            round_number=round_number,
            # One body serves the whole cohort, so it is bound to no slot, lease or deadline.
            slot=0,
            lease_nonce=NO_NONCE,
            base_sha256=base_sha256,
            schema_sha256=schema_sha256,
            deadline_ms=0,
        )
        return cls(seal_body(payload, context, sender=sender))

    def pieces(self, recipient: CertifiedKey, offset: int) -> Iterator[bytes]:
        """Yield one device's message from a byte offset on, as encoded ``ModelChunk`` messages."""
        slip = self._slip(recipient)
        for size, message in ((len(slip), encode_chunk(slip)), *self._messages):
            if offset >= size:
                offset -= size
            elif offset:
                yield encode_chunk(memoryview(message)[offset - size :])
                offset = 0
            else:
                yield message

    def _slip(self, recipient: CertifiedKey) -> bytes:
        """Return the same slip each time: a device that comes back has kept a part of it."""
        slip = self._slips.get(recipient.sha256)
        if slip is None:
            slip = self._slips[recipient.sha256] = self._body.for_recipient(recipient)
        return slip


def _messages(chunk: memoryview) -> Iterator[tuple[int, bytes]]:
    """Yield the size and the encoded message of each piece of a sealed chunk."""
    for start in range(0, len(chunk), PIECE_BYTES):
        piece = chunk[start : start + PIECE_BYTES]
        yield len(piece), encode_chunk(piece)


def encode_chunk(data: BytesLike) -> bytes:
    """Return ``ModelChunk(data=data).SerializeToString()``, with one copy of the data."""
    return b"".join((start_of(pb.ModelChunk, len(data)), data))
