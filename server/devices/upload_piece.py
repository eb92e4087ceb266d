"""Read the messages of an upload without copying what they carry."""

from privacy.foundation.atomic_files import BytesLike
from protos import federation_pb2 as pb
from protos.data_chunks import large_data


class UploadPiece:
    """An ``UploadChunk``, which gives its data away once and does not hold it any longer.

    Attributes:
        lease_nonce: The upload's lease; empty in all but the first piece of a stream.
        offset: Where the upload goes on; 0 in all but the first piece of a stream.
    """

    def __init__(self, data: BytesLike, lease_nonce: bytes = b"", offset: int = 0) -> None:
        self.lease_nonce = lease_nonce
        self.offset = offset
        self._data: BytesLike | None = data

    def take(self) -> BytesLike:
        """Return the data and let go of it.

        Raises:
            RuntimeError: If it was taken before.
        """
        data, self._data = self._data, None
        if data is None:
            raise RuntimeError("a piece gives its data once; keep what take() returned")
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
