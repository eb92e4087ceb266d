"""Numbers of 8 and 4 bits against their arithmetic, and against bytes that nobody wrote."""

import struct
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_st

from models.compression.block_quantisation import BlockQuantisation
from models.compression.value_coder import Draws
from models.vector.codec import CodecError, FlatVector

Bits = Literal[4, 8]
BITS = pytest.mark.parametrize("bits", [4, 8])
LEAST = np.finfo(np.float32).tiny
VALUES = numpy_st.arrays(
    np.float32,
    st.integers(0, 70),
    elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
)


def largest(bits: Bits) -> int:
    return {8: 127, 4: 7}[bits]


def encoded(coder: BlockQuantisation, values: FlatVector, seed: int | None = None) -> bytearray:
    memory = bytearray(coder.byte_count(values.size))
    coder.encode(values, memoryview(memory), None if seed is None else Draws(seed))
    return memory


def decoded(coder: BlockQuantisation, coded: bytes | bytearray, count: int) -> FlatVector:
    values = np.full(count, np.nan, np.float32)
    coder.decode(memoryview(coded), values)
    return values


def test_eight_bits_are_a_scale_and_then_numbers() -> None:
    coder = BlockQuantisation(8, 16)
    values = np.zeros(17, np.float32)
    values[:3] = [254.0, -2.0, 3.1]  # scale 2: 127, -1 and 1.55, which is nearest to 2
    values[16] = -1.27  # a block of its own, scale 0.01

    coded = encoded(coder, values)

    assert struct.unpack_from("<2f", coded) == (2.0, np.float32(1.27) / np.float32(127))
    assert np.frombuffer(coded, np.int8, offset=8)[:3].tolist() == [127, -1, 2]
    assert np.frombuffer(coded, np.int8, offset=8)[16:].tolist() == [-127] + [0] * 15
    assert len(coded) == 2 * 4 + 2 * 16 == coder.byte_count(17)


def test_four_bits_are_stored_plus_eight_the_halves_of_a_block_side_by_side() -> None:
    coder = BlockQuantisation(4, 16)
    values = np.zeros(16, np.float32)
    values[[0, 8, 15]] = [7.0, -7.0, 3.0]  # scale 1

    coded = encoded(coder, values)

    # Byte 0 holds values 0 and 8: 7 + 8 low and -7 + 8 high; byte 7 holds values 7 and 15.
    assert coded[4:] == bytes([0x1F, *[0x88] * 6, 0xB8])
    assert len(coded) == 4 + 8


@BITS
@given(values=VALUES, seed=st.none() | st.integers(0, 2**63 - 1))
def test_no_value_moves_by_more_than_a_step(
    bits: Bits, values: FlatVector, seed: int | None
) -> None:
    coder = BlockQuantisation(bits, 16)

    found = decoded(coder, encoded(coder, values, seed), values.size)

    for start in range(0, values.size, 16):
        block = values[start : start + 16].astype(np.float64)
        step = max(np.abs(block).max() / largest(bits), LEAST)
        allowed = step if seed is not None else np.minimum(step / 2, np.abs(block))
        # What float32 rounds: the scale, the quotient and the product, 2^-24 of the value each.
        allowed = allowed + 4 * 2**-24 * (np.abs(block) + step)
        assert (np.abs(found[start : start + 16] - block) <= allowed).all()


@BITS
def test_the_mean_over_all_draws_is_the_value(bits: Bits) -> None:
    # Quarters of a step, and one value of a whole block so that the step is 1.
    values = np.zeros(16, np.float32)
    values[:4] = [largest(bits), 0.25, -2.75, 3.5]
    coder = BlockQuantisation(bits, 16)
    draws = 2_000

    found = [decoded(coder, encoded(coder, values, seed), 16) for seed in range(draws)]
    mean = np.array(found, np.float64).sum(axis=0) / draws

    # A draw's standard deviation is at most 1/2: six of the mean's are 0.067, one in a billion.
    assert np.abs(mean - values).max() < 6 * 0.5 / draws**0.5
    assert mean[0] == largest(bits)


@BITS
def test_the_same_seed_rounds_alike_and_another_does_not(bits: Bits) -> None:
    values = np.linspace(-1, 1, 4096, dtype=np.float32)
    coder = BlockQuantisation(bits, 256)

    assert encoded(coder, values, 1) == encoded(coder, values, 1) != encoded(coder, values, 2)


@BITS
def test_many_pieces_are_coded_as_one_would_be(bits: Bits) -> None:
    # Three pieces of 65,536 and a short one: each block comes back with its own scale.
    values = np.repeat(np.arange(1, 4 * 256 - 10, dtype=np.float32), 256)[: 3 * 65_536 + 300]
    coder = BlockQuantisation(bits, 256)

    found = decoded(coder, encoded(coder, values), values.size)

    np.testing.assert_allclose(found, values, rtol=1e-6)


@BITS
def test_no_values_take_no_bytes(bits: Bits) -> None:
    coder = BlockQuantisation(bits, 256)
    nothing = np.empty(0, np.float32)

    assert coder.byte_count(0) == 0
    assert decoded(coder, encoded(coder, nothing), 0).size == 0


@BITS
@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf, -np.inf, 1e-39, 1e38])
def test_a_scale_that_no_block_has_is_refused(bits: Bits, scale: float) -> None:
    # 1e38 times the largest number is beyond float32.
    coder = BlockQuantisation(bits, 16)
    coded = encoded(coder, np.ones(20, np.float32))
    struct.pack_into("<f", coded, 4, scale)

    with pytest.raises(CodecError, match=r"a scale must lie in .*, got .* in block 1"):
        decoded(coder, coded, 20)


def test_a_number_below_the_smallest_is_refused() -> None:
    eight, four = BlockQuantisation(8, 16), BlockQuantisation(4, 16)
    bytes_of_eight, bytes_of_four = (
        encoded(coder, np.ones(16, np.float32)) for coder in (eight, four)
    )
    bytes_of_eight[4], bytes_of_four[4] = 0x80, 0xF0

    with pytest.raises(CodecError, match="must be >= -127, got -128"):
        decoded(eight, bytes_of_eight, 16)
    with pytest.raises(CodecError, match="must be >= -7, got -8"):
        decoded(four, bytes_of_four, 16)


@BITS
def test_anything_but_zeros_after_the_last_value_is_refused(bits: Bits) -> None:
    coder = BlockQuantisation(bits, 16)
    coded = encoded(coder, np.ones(9, np.float32))
    coded[-1] = 0x98 if bits == 4 else 1

    with pytest.raises(CodecError, match="after the last value must be 0"):
        decoded(coder, coded, 9)


@BITS
@given(data=st.data())
def test_any_bytes_are_finite_values_or_refused(bits: Bits, data: st.DataObject) -> None:
    coder = BlockQuantisation(bits, 16)
    count = data.draw(st.integers(1, 40))
    size = coder.byte_count(count)
    coded = data.draw(st.binary(min_size=size, max_size=size))

    try:
        values = decoded(coder, coded, count)
    except CodecError:
        return
    assert np.isfinite(values).all()
