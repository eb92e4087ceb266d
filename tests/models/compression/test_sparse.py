"""The largest values of an update: in how many bytes, and places that nobody may write."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_st

from models.compression.block_quantisation import BlockQuantisation
from models.compression.half_precision import Float32
from models.compression.sparse import SparseCoder
from models.vector.codec import CodecError, FlatVector

VALUES = numpy_st.arrays(
    np.float32,
    st.integers(0, 300),
    elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
)


def encoded(coder: SparseCoder, values: FlatVector) -> bytearray:
    memory = bytearray(coder.byte_count(values.size))
    coder.encode(values, memoryview(memory), None)
    return memory


def decoded(coder: SparseCoder, coded: bytes | bytearray, count: int) -> FlatVector:
    values = np.full(count, np.nan, np.float32)
    coder.decode(memoryview(coded), values)
    return values


def test_few_places_are_numbers_and_many_are_marks() -> None:
    values = np.zeros(100, np.float32)
    values[[3, 7, 99]] = [-3.0, 2.0, 5.0]
    few, many = (SparseCoder(part, Float32()) for part in (0.03, 0.04))

    assert encoded(few, values) == struct.pack("<3I3f", 3, 7, 99, -3.0, 2.0, 5.0)
    # 4 numbers would be 16 bytes, marks are 13; the first of the zeros comes along.
    marks = bytearray(13)
    marks[0], marks[12] = 0b1000_1001, 0b1000
    assert encoded(many, values) == marks + struct.pack("<4f", 0.0, -3.0, 2.0, 5.0)


@given(values=VALUES, fraction=st.floats(0.001, 0.999))
def test_what_is_sent_arrives_and_the_rest_is_zero(values: FlatVector, fraction: float) -> None:
    coder = SparseCoder(fraction, Float32())

    coded = encoded(coder, values)
    found = decoded(coder, coded, values.size)

    k = int(np.ceil(fraction * values.size))
    different = found != values
    assert (found[different] == 0).all()
    assert different.sum() <= values.size - k
    assert len(coded) == coder.byte_count(values.size)
    if k:
        least = np.sort(np.abs(values))[::-1][k - 1]
        assert (np.abs(values[different]) <= least).all()


@pytest.mark.parametrize(
    ("places", "text"),
    [
        ([3, 7, 100], "must be below 100, got 100"),
        ([3, 7, 2**32 - 1], "must be below 100"),
        ([3, 3, 9], "each once; got 3 after 3"),
        ([7, 3, 9], "each once; got 3 after 7"),
    ],
)
def test_a_place_out_of_range_or_twice_is_refused(places: list[int], text: str) -> None:
    coder = SparseCoder(0.03, Float32())

    with pytest.raises(CodecError, match=text):
        decoded(coder, struct.pack("<3I3f", *places, 1.0, 1.0, 1.0), 100)


@pytest.mark.parametrize("first", [0b1111_1000, 0b1110_0000])
def test_more_or_fewer_marks_than_values_are_refused(first: int) -> None:
    coder = SparseCoder(0.04, Float32())
    marks = bytes([first, *[0] * 12])

    with pytest.raises(
        CodecError, match=f"4 of 100 places must be marked, got {first.bit_count()}"
    ):
        decoded(coder, marks + bytes(16), 100)


def test_a_mark_behind_the_last_place_is_refused() -> None:
    coder = SparseCoder(0.04, Float32())

    with pytest.raises(CodecError, match="must be marked"):
        decoded(coder, bytes([0b111, *[0] * 11, 0b1000_0000]) + bytes(16), 100)


@given(data=st.data())
def test_any_bytes_are_values_or_refused(data: st.DataObject) -> None:
    coder = SparseCoder(data.draw(st.sampled_from([0.02, 0.3])), BlockQuantisation(4, 16))
    count = data.draw(st.integers(1, 200))
    size = coder.byte_count(count)
    coded = data.draw(st.binary(min_size=size, max_size=size))

    try:
        values = decoded(coder, coded, count)
    except CodecError:
        return
    assert np.isfinite(values).all()
