"""Messages of an upload are read by hand; protobuf must read the same."""

import weakref

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from privacy.foundation.atomic_files import BytesLike
from protos import federation_pb2 as pb
from server.devices.upload_piece import UploadPiece, read_piece

MIB = 1 << 20


def content(piece: UploadPiece) -> tuple[bytes, int, BytesLike]:
    """Return all that a piece has."""
    return piece.lease_nonce, piece.offset, piece.take()


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, MIB, MIB + 16, 2 * MIB, 3 * MIB])
def test_data_alone_is_read_whatever_its_size(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)

    piece = read_piece(pb.UploadChunk(data=data).SerializeToString())

    assert content(piece) == (b"", 0, data)


def test_many_bytes_are_not_copied() -> None:
    encoded = pb.UploadChunk(data=bytes(MIB)).SerializeToString()

    data = read_piece(encoded).take()

    assert isinstance(data, memoryview)
    assert data.obj is encoded


def test_a_piece_does_not_hold_what_it_gave() -> None:
    piece = read_piece(pb.UploadChunk(data=bytes(MIB)).SerializeToString())
    is_held = weakref.ref(piece.take())

    assert is_held() is None
    with pytest.raises(RuntimeError, match="once"):
        piece.take()


@given(
    nonce=st.binary(max_size=16),
    offset=st.integers(0, 2**64 - 1),
    size=st.one_of(st.integers(0, 300), st.integers(16_370, 16_400)),
)
def test_every_field_is_read_as_protobuf_wrote_it(nonce: bytes, offset: int, size: int) -> None:
    chunk = pb.UploadChunk(lease_nonce=nonce, offset=offset, data=bytes(size))

    assert content(read_piece(chunk.SerializeToString())) == (nonce, offset, bytes(size))


def test_fields_in_another_order_are_read_too() -> None:
    encoded = (
        pb.UploadChunk(data=bytes(20_000)).SerializeToString()
        + pb.UploadChunk(lease_nonce=b"n" * 16).SerializeToString()
    )

    assert content(read_piece(encoded)) == (b"n" * 16, 0, bytes(20_000))


@pytest.mark.parametrize("message", [b"\x1a\xff", b"\x1a\x05abc", b"\xff" * 12])
def test_what_is_no_message_is_refused(message: bytes) -> None:
    with pytest.raises(DecodeError):
        read_piece(message)
