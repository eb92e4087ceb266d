"""Chunks of an upload are encoded by hand; protobuf must read them as its own."""

import io

from hypothesis import given
from hypothesis import strategies as st

from edge_client.transport import PIECE_BYTES, encoded_chunks
from protos import federation_pb2 as pb


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
