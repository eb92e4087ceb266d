"""Read the messages of an upload without copying what they carry."""

from typing import NamedTuple

from privacy.foundation.atomic_files import BytesLike
from protos import federation_pb2 as pb
from protos.data_chunks import large_data


class UploadPiece(NamedTuple):
    """An ``UploadChunk``; only the first of a stream has a nonce and an offset."""

    data: BytesLike
    lease_nonce: bytes = b""
    offset: int = 0


def read_piece(message: bytes) -> UploadPiece:
    """Return an encoded ``UploadChunk``; Protobuf reads those that hold more than data.

    Raises:
        google.protobuf.message.DecodeError: If the message is no ``UploadChunk``.
    """
    data = large_data(pb.UploadChunk, message)
    if data is not None:
        return UploadPiece(data)
    chunk = pb.UploadChunk.FromString(message)
    return UploadPiece(chunk.data, chunk.lease_nonce, chunk.offset)
