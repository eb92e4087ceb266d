"""Parts of an update: which values, in how many bytes, and places that nobody may write."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_st

from models.compression.block_quantisation import BlockQuantisation
from models.compression.half_precision import Float32
from models.compression.sparse import Choice, Drawn, Largest, SparseCoder
from models.compression.value_coder import Draws
from models.vector.codec import CodecError, FlatVector

VALUES = numpy_st.arrays(
    np.float32,
    st.integers(0, 300),
    elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
)
CHOICES = pytest.mark.parametrize("choice", [Largest(), Drawn()])


def encoded(coder: SparseCoder, values: FlatVector, seed: int = 1) -> bytearray:
    memory = bytearray(coder.byte_count(values.size))
    coder.encode(values, memoryview(memory), Draws(seed))
    return memory


def decoded(coder: SparseCoder, coded: bytes | bytearray, count: int) -> FlatVector:
    values = np.full(count, np.nan, np.float32)
    coder.decode(memoryview(coded), values)
    return values


def test_few_places_are_numbers_and_many_are_marks() -> None:
    values = np.zeros(100, np.float32)
    values[[3, 7, 99]] = [-3.0, 2.0, 5.0]
    few, many = (SparseCoder(Largest(), part, Float32()) for part in (0.03, 0.04))

    assert encoded(few, values) == struct.pack("<3I3f", 3, 7, 99, -3.0, 2.0, 5.0)
    # 4 numbers would be 16 bytes, marks are 13; the first of the zeros comes along.
    marks = bytearray(13)
    marks[0], marks[12] = 0b1000_1001, 0b1000
    assert encoded(many, values) == marks + struct.pack("<4f", 0.0, -3.0, 2.0, 5.0)


@CHOICES
@given(values=VALUES, fraction=st.floats(0.001, 0.999), seed=st.integers(0, 2**63 - 1))
def test_what_is_sent_arrives_and_the_rest_is_zero(
    choice: Choice, values: FlatVector, fraction: float, seed: int
) -> None:
    coder = SparseCoder(choice, fraction, Float32())

    coded = encoded(coder, values, seed)
    found = decoded(coder, coded, values.size)

    k = int(np.ceil(fraction * values.size))
    different = found != values
    assert (found[different] == 0).all()
    assert different.sum() <= values.size - k
    assert len(coded) == coder.byte_count(values.size)
    if isinstance(choice, Largest) and k:
        least = np.sort(np.abs(values))[::-1][k - 1]
        assert (np.abs(values[different]) <= least).all()


def test_a_value_is_drawn_as_often_as_its_stretch_is_short() -> None:
    n, k, draws = 10, 3, 6000
    coder = SparseCoder(Drawn(), k / n, Float32())
    ones = np.ones(n, np.float32)

    found = np.array([decoded(coder, encoded(coder, ones, seed), n) for seed in range(draws)])

    assert (found.sum(axis=1) == k).all()
    # Stretches of 3, 3 and 4 values: a third or a quarter each; six deviations, one in a billion.
    expected = np.array([1 / 3] * 6 + [1 / 4] * 4)
    assert np.abs(found.mean(axis=0) - expected).max() < 6 * (0.25 / draws) ** 0.5


def test_the_places_of_a_draw_cost_eight_bytes() -> None:
    coder = SparseCoder(Drawn(), 0.1, BlockQuantisation(8, 16))

    assert coder.byte_count(1600) == 8 + 10 * (4 + 16)
    assert coder.byte_count(0) == 0


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
    coder = SparseCoder(Largest(), 0.03, Float32())

    with pytest.raises(CodecError, match=text):
        decoded(coder, struct.pack("<3I3f", *places, 1.0, 1.0, 1.0), 100)


@pytest.mark.parametrize("first", [0b1111_1000, 0b1110_0000])
def test_more_or_fewer_marks_than_values_are_refused(first: int) -> None:
    coder = SparseCoder(Largest(), 0.04, Float32())
    marks = bytes([first, *[0] * 12])

    with pytest.raises(
        CodecError, match=f"4 of 100 places must be marked, got {first.bit_count()}"
    ):
        decoded(coder, marks + bytes(16), 100)


def test_a_mark_behind_the_last_place_is_refused() -> None:
    coder = SparseCoder(Largest(), 0.04, Float32())

    with pytest.raises(CodecError, match="must be marked"):
        decoded(coder, bytes([0b111, *[0] * 11, 0b1000_0000]) + bytes(16), 100)


@CHOICES
@given(data=st.data())
def test_any_bytes_are_values_or_refused(choice: Choice, data: st.DataObject) -> None:
    coder = SparseCoder(choice, data.draw(st.sampled_from([0.02, 0.3])), BlockQuantisation(4, 16))
    count = data.draw(st.integers(1, 200))
    size = coder.byte_count(count)
    coded = data.draw(st.binary(min_size=size, max_size=size))

    try:
        values = decoded(coder, coded, count)
    except CodecError:
        return
    assert np.isfinite(values).all()
