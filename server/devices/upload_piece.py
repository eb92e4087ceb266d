"""Read the messages of an upload without copying what they carry, and hold them no longer than needed."""

from privacy.foundation.atomic_files import BytesLike
from protos import federation_pb2 as pb
from protos.data_chunks import large_data


class UploadPiece:
    """An ``UploadChunk``, whose data is taken out once.

    gRPC holds each message until the next one is here, which a slow line brings minutes later.

    Attributes:
        lease_nonce: Only the first piece of a stream has one, and an offset.
        offset: Where in the sealed message its data begins.
    """

    def __init__(self, data: BytesLike, lease_nonce: bytes = b"", offset: int = 0) -> None:
        self.lease_nonce = lease_nonce
        self.offset = offset
        self._data = data

    def take(self) -> BytesLike:
        """Return the data and let go of it; without any from the second time on."""
        data, self._data = self._data, b""
        return data


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
