"""Chunks are encoded and read by hand; protobuf must agree with both."""

import io

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from edge_client.wire.transport import chunk_data, encoded_chunks
from protos import federation_pb2 as pb
from protos.data_chunks import PIECE_BYTES


@given(data=st.binary(min_size=1, max_size=400), nonce=st.binary(min_size=16, max_size=16))
def test_chunks_are_encoded_as_protobuf_encodes_them(data: bytes, nonce: bytes) -> None:
    chunks = list(encoded_chunks(io.BytesIO(data), nonce, offset=7))

    assert chunks == [pb.UploadChunk(lease_nonce=nonce, offset=7, data=data).SerializeToString()]


def test_only_the_first_chunk_names_the_lease_and_the_offset() -> None:
    data = bytes(2 * PIECE_BYTES + 5)

    chunks = [
        pb.UploadChunk.FromString(chunk)
        for chunk in encoded_chunks(io.BytesIO(data), b"n" * 16, offset=3)
    ]

    assert [chunk.lease_nonce for chunk in chunks] == [b"n" * 16, b"", b""]
    assert [chunk.offset for chunk in chunks] == [3, 0, 0]
    assert b"".join(chunk.data for chunk in chunks) == data


@pytest.mark.parametrize(
    "size", [0, 1, 127, 128, 16_383, 16_384, PIECE_BYTES + 16, 2 << 20, 3 << 20]
)
def test_a_model_chunk_is_read_as_protobuf_reads_it(size: int) -> None:
    message = pb.ModelChunk(data=bytes(range(256)) * (size // 256) + bytes(size % 256))

    assert chunk_data(message.SerializeToString()) == message.data
    assert len(chunk_data(message.SerializeToString())) == size


def test_a_large_model_chunk_is_not_copied() -> None:
    encoded = pb.ModelChunk(data=bytes(PIECE_BYTES)).SerializeToString()

    assert chunk_data(encoded).obj is encoded


@given(message=st.binary(max_size=60))
def test_what_is_no_model_chunk_is_left_to_protobuf(message: bytes) -> None:
    try:
        expected = pb.ModelChunk.FromString(message).data
    except DecodeError:
        with pytest.raises(DecodeError):
            chunk_data(message)
    else:
        assert chunk_data(message) == expected


def test_the_last_of_two_data_fields_counts_as_in_protobuf() -> None:
    twice = pb.ModelChunk(data=bytes(20_000)).SerializeToString() * 2

    assert chunk_data(twice) == bytes(20_000)


@pytest.mark.parametrize("offset", [0, 1 << 20])
def test_an_upload_goes_in_pieces_of_an_eighth_of_a_mebibyte(offset: int) -> None:
    data = bytes(2 * PIECE_BYTES + 5)

    sizes = [
        len(pb.UploadChunk.FromString(chunk).data)
        for chunk in encoded_chunks(io.BytesIO(data), b"n" * 16, offset)
    ]

    assert sizes == [131_072, 131_072, 5]
