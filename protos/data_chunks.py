"""Chunks of data, written and read without protobuf, which would copy the data.

All chunks but the first of an upload hold nothing but data, and then the message is a fixed start
and the data. Protobuf copies the data through memory that it takes anew for every message, which
costs more than sealing it does.
"""

from collections.abc import Callable
from functools import lru_cache

from protos import federation_pb2 as pb

PIECE_BYTES = 128 << 10
"""Data of a chunk, which lies in memory until it is whole, and is lost if the line breaks."""

Kind = Callable[..., pb.ModelChunk | pb.UploadChunk]
"""A chunk's class."""

# A field's number and length take this much before data of 16 KiB to 2 MiB.
_LARGE_START_BYTES = 4


@lru_cache(32)
def start_of(kind: Kind, data_bytes: int) -> bytes:
    """Return what stands before the data in an encoded chunk of data alone."""
    message = kind(data=bytes(data_bytes)).SerializeToString()
    return message[: len(message) - data_bytes]


def large_data(kind: Kind, message: bytes) -> memoryview | None:
    """Return the data of an encoded chunk where gRPC laid it; None if protobuf has to read it.

    The message is as it came, from anybody.
    """
    start = start_of(kind, max(0, len(message) - _LARGE_START_BYTES))
    if len(start) != _LARGE_START_BYTES or not message.startswith(start):
        return None
    return memoryview(message)[_LARGE_START_BYTES:]
