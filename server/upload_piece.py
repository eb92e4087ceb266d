"""Read the messages of an upload without copying what they carry."""

from functools import lru_cache
from typing import NamedTuple

from privacy.atomic import BytesLike
from protos import federation_pb2 as pb

# A field's number and length take this much before data of 16 KiB to 2 MiB.
_LARGE_START_BYTES = 4


class UploadPiece(NamedTuple):
    """Hold an ``UploadChunk``.

    Attributes:
        data: Sealed bytes, where gRPC laid them if they are many.
        lease_nonce: The lease; only in the first of a stream.
        offset: Where the data belongs; only in the first of a stream.
    """

    data: BytesLike
    lease_nonce: bytes = b""
    offset: int = 0


def read_piece(message: bytes) -> UploadPiece:
    """Return an encoded ``UploadChunk``.

    All but the first of a stream hold nothing but data, and then the message is a fixed start and
    the data. Protobuf reads whatever does not look like that.

    Raises:
        google.protobuf.message.DecodeError: If the message is no ``UploadChunk``.
    """
    start = _start_of_data(max(0, len(message) - _LARGE_START_BYTES))
    if len(start) == _LARGE_START_BYTES and message.startswith(start):
        return UploadPiece(memoryview(message)[_LARGE_START_BYTES:])
    chunk = pb.UploadChunk.FromString(message)
    return UploadPiece(chunk.data, chunk.lease_nonce, chunk.offset)


@lru_cache(16)
def _start_of_data(data_bytes: int) -> bytes:
    """Return what stands before a chunk's data on the wire."""
    return pb.UploadChunk(data=bytes(data_bytes)).SerializeToString()[: -data_bytes or None]
