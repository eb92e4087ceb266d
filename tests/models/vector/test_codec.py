"""The codec against its own layout, spelled out byte by byte, and against damaged payloads."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_st

from models.vector.codec import (
    CodecError,
    check_finite,
    decode,
    encode,
    named_tensors,
    payload_size,
)
from models.vector.schema import Schema, TensorSpec

SCHEMA = Schema(
    (
        TensorSpec(name="weight", shape=(2, 3), layer="dense"),
        TensorSpec(name="bias", shape=(2,), layer="dense"),
    )
)
FLAT = np.arange(8, dtype=np.float32)


def header(
    magic: bytes = b"SOTTOPAR", version: int = 1, zero: int = 0, digest: bytes = SCHEMA.sha256
) -> bytes:
    return magic + struct.pack("<II", version, zero) + digest


def test_a_payload_is_the_header_and_then_little_endian_floats() -> None:
    payload = encode(SCHEMA, FLAT)

    assert bytes(payload) == header() + struct.pack("<8f", *range(8))
    assert payload_size(SCHEMA) == 48 + 8 * 4


def test_a_payload_can_take_the_memory_of_the_one_before() -> None:
    memory = memoryview(bytearray(encode(SCHEMA, FLAT + 1)))

    payload = encode(SCHEMA, FLAT, into=memory)

    assert payload == encode(SCHEMA, FLAT) == memory
    with pytest.raises(ValueError, match="into must have 80 bytes, got 79"):
        encode(SCHEMA, FLAT, into=memory[1:])


@given(
    numpy_st.arrays(
        np.float32,
        8,
        elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
    )
)
def test_every_finite_vector_comes_back_bit_for_bit(flat: np.ndarray) -> None:
    decoded = decode(SCHEMA, encode(SCHEMA, flat))

    assert decoded.tobytes() == flat.tobytes()


def test_decoding_copies_nothing_and_cannot_be_written_through() -> None:
    payload = bytearray(encode(SCHEMA, FLAT))

    decoded = decode(SCHEMA, payload)

    assert np.shares_memory(decoded, np.frombuffer(payload, dtype=np.uint8))
    with pytest.raises(ValueError, match="read-only"):
        decoded[0] = 1


def test_tensors_come_out_in_their_own_shapes() -> None:
    tensors = named_tensors(SCHEMA, FLAT)

    assert list(tensors) == ["weight", "bias"]
    np.testing.assert_array_equal(tensors["weight"], [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(tensors["bias"], [6, 7])


@pytest.mark.parametrize(
    ("payload", "rule"),
    [
        (b"", "80 contiguous bytes, got 0"),
        (header(), "80 contiguous bytes, got 48"),
        (header() + bytes(31), "got 79"),
        (header() + bytes(33), "got 81"),
        (header(magic=b"SOTTOPAX") + bytes(32), "must start with"),
        (header(version=2) + bytes(32), "this side is older"),
        (header(version=0) + bytes(32), "the sender is older"),
        (header(zero=1) + bytes(32), "reserved field must be 0, got 1"),
        (header(digest=bytes(32)) + bytes(32), "another model"),
        (header() + struct.pack("<8f", *[0.0] * 5, float("nan"), 0.0, 0.0), "in weight"),
        (header() + struct.pack("<8f", *[0.0] * 7, float("-inf")), "in bias"),
        (memoryview(header() * 4)[::2][:80], "contiguous"),
    ],
)
def test_a_damaged_payload_is_refused_by_the_rule_it_breaks(
    payload: bytes | memoryview, rule: str
) -> None:
    with pytest.raises(CodecError, match=rule):
        decode(SCHEMA, payload)


@given(st.integers(0, 47), st.integers(1, 255))
def test_no_header_byte_can_change_unnoticed(position: int, flip: int) -> None:
    payload = bytearray(encode(SCHEMA, FLAT))
    payload[position] ^= flip

    with pytest.raises(CodecError):
        decode(SCHEMA, payload)


@pytest.mark.parametrize(
    ("flat", "rule"),
    [
        (FLAT.astype(np.float64), "must be float32 of .*, got float64"),
        (FLAT[:7], r"of shape \(8,\), got float32 of shape \(7,\)"),
        (FLAT.reshape(2, 4), r"got .* of shape \(2, 4\)"),
        (np.array([0, 0, 0, 0, 0, 0, 0, np.inf], dtype=np.float32), "NaN or infinity in bias"),
    ],
)
def test_what_does_not_fit_the_schema_is_not_encoded(flat: np.ndarray, rule: str) -> None:
    with pytest.raises(CodecError, match=rule):
        encode(SCHEMA, flat)


def test_a_value_that_is_not_finite_is_found_beyond_the_first_block() -> None:
    schema = Schema(
        (
            TensorSpec(name="first", shape=(1 << 18,), layer="a"),
            TensorSpec(name="second", shape=(5,), layer="b"),
        )
    )
    flat = np.zeros(schema.element_count, dtype=np.float32)
    flat[-1] = np.nan

    with pytest.raises(CodecError, match="in second"):
        check_finite(schema, flat)


def test_a_strided_vector_is_encoded_in_its_own_order() -> None:
    strided = np.arange(16, dtype=np.float32)[::2]

    decoded = decode(SCHEMA, encode(SCHEMA, strided))

    np.testing.assert_array_equal(decoded, [0, 2, 4, 6, 8, 10, 12, 14])
