"""Packed integers against bytes written by hand, and what is no packed vector."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.masking.packing import PACKED_BITS, add_packed, pack, packed_bytes, unpack

WIDTHS = st.sampled_from(PACKED_BITS)


def drawn(count: int, bits: int) -> np.ndarray:
    """Return elements below 2^bits, the largest among them."""
    generator = np.random.default_rng(count)
    values = generator.integers(0, 2**bits, count, dtype=np.uint64).astype(np.uint32)
    values[: count // 2 : 3] = 2**bits - 1
    return values


@given(bits=WIDTHS, count=st.integers(0, 70))
def test_unpacking_is_the_inverse_of_packing(bits: int, count: int) -> None:
    values = drawn(count, bits)

    packed = pack(values, bits)

    assert len(packed) == -(-count * bits // 8)
    assert np.array_equal(unpack(packed, count, bits), values)


@pytest.mark.parametrize(
    ("bits", "elements", "packed"),
    [
        (16, [0xABCD, 0x0123], "cdab 2301"),
        (24, [0xABCDEF, 0x012345], "efcd 4523 ab01"),
        (32, [0xABCDEF98, 0x01234567], "98ef 6745 cdab 2301"),
        # Nibbles of elements 0 and 2, then of element 1 and none.
        (20, [0xABCDE, 0x12345, 0x6789F], "debc 4523 9f78 6a01"),
    ],
)
def test_low_halves_come_first_and_what_is_above_them_behind(
    bits: int, elements: list[int], packed: str
) -> None:
    expected = bytes.fromhex(packed.replace(" ", ""))

    assert bytes(pack(np.array(elements, dtype=np.uint32), bits)) == expected


@pytest.mark.parametrize("bits", PACKED_BITS)
@pytest.mark.parametrize("count", [32_767, 32_768, 32_769, 65_541])
def test_blocks_meet_without_a_gap(bits: int, count: int) -> None:
    values = drawn(count, bits)
    packed = bytes(pack(values, bits))

    assert len(packed) == packed_bytes(count, bits)
    assert np.array_equal(unpack(packed, count, bits), values)


@pytest.mark.parametrize("bits", PACKED_BITS)
def test_a_vector_is_read_wherever_it_lies_in_a_message(bits: int) -> None:
    values = drawn(101, bits)
    message = memoryview(b"\xff" + bytes(pack(values, bits)) + b"\xff")

    assert np.array_equal(unpack(message[1:-1], 101, bits), values)


@given(bits=WIDTHS, count=st.integers(1, 40))
def test_adding_packed_elements_is_adding_them(bits: int, count: int) -> None:
    values, total = drawn(count, bits), np.full(count, 2**32 - 1, dtype=np.uint32)

    add_packed(total, pack(values, bits), bits=bits)

    assert np.array_equal(total, values - np.uint32(1))


@given(bits=WIDTHS, count=st.integers(1, 40), extra=st.sampled_from([-1, 1, 5]))
def test_a_wrong_length_is_refused_and_changes_nothing(bits: int, count: int, extra: int) -> None:
    size = packed_bytes(count, bits)
    total = np.zeros(count, dtype=np.uint32)

    with pytest.raises(ValueError, match=f"take {size} bytes, got"):
        add_packed(total, b"\xff" * (size + extra), bits=bits)

    assert not total.any()


@pytest.mark.parametrize("filling", [0x10, 0x80, 0xF0])
def test_the_nibble_behind_an_odd_count_must_be_zero(filling: int) -> None:
    # Three elements of 20 bits end in the middle of the eighth byte.
    packed = bytearray(pack(np.full(3, 2**20 - 1, dtype=np.uint32), 20))
    packed[-1] |= filling

    with pytest.raises(ValueError, match="must be zero"):
        unpack(bytes(packed), 3, 20)


def test_an_element_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be < 2\^20, got 1048576"):
        pack(np.array([1, 2**20], dtype=np.uint32), 20)


@pytest.mark.parametrize("bits", [0, 8, 17, 33])
def test_another_width_is_refused(bits: int) -> None:
    with pytest.raises(ValueError, match="bits must be one of"):
        packed_bytes(1, bits)
    with pytest.raises(ValueError, match="bits must be one of"):
        pack(np.zeros(1, dtype=np.uint32), bits)
