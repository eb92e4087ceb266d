"""Values in 16 and 32 bits against arithmetic."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.compression.half_precision import Bfloat16, Float32
from models.compression.value_coder import Draws, ValueCoder
from models.vector.codec import FlatVector


def there_and_back(coder: ValueCoder, values: FlatVector, seed: int | None = None) -> FlatVector:
    memory = memoryview(bytearray(coder.byte_count(values.size)))
    coder.encode(values, memory, None if seed is None else Draws(seed))
    found = np.empty_like(values)
    coder.decode(memory, found)
    return found


@pytest.mark.parametrize(("coder", "size"), [(Bfloat16(), 2), (Float32(), 4)])
def test_bytes_follow_from_the_number_of_values(coder: ValueCoder, size: int) -> None:
    assert [coder.byte_count(count) for count in (0, 1, 1000)] == [0, size, 1000 * size]


def test_bfloat16_rounds_to_the_nearest_and_ties_to_even() -> None:
    # 8 significant bits: 1 + 2^-7 is the first after 1.
    step = 2**-7
    values = np.array([1, 1 + step / 2, 1 + step * 3 / 2, 1 + 0.51 * step, -1 - step / 2])

    found = there_and_back(Bfloat16(), values.astype(np.float32))

    assert found.tolist() == [1, 1, 1 + 2 * step, 1 + step, -1]


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(0, 2**32))
def test_bfloat16_rounds_at_random_to_a_neighbour(value: float, seed: int) -> None:
    values = np.full(4, value, np.float32)

    found = there_and_back(Bfloat16(), values, seed)

    below = (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    above = np.minimum(below.view(np.uint32) + np.uint32(0x10000), np.uint32(0xFF7F0000))
    allowed = {float(below[0]), float(above.astype(np.uint32).view(np.float32)[0])}
    assert set(found.tolist()) <= allowed
    assert np.isfinite(found).all()


def test_the_mean_over_bfloat16s_draws_is_the_value() -> None:
    # A quarter of the way from 1 to 1 + 2^-7: up in one of four draws.
    step, count = 2**-7, 40_000
    values = np.full(count, 1 + step / 4, np.float32)

    found = there_and_back(Bfloat16(), values, seed=3)

    ups = float((found == 1 + step).mean())
    assert set(found.tolist()) == {1.0, 1 + step}
    assert abs(ups - 0.25) < 6 * (0.25 * 0.75 / count) ** 0.5  # one in a billion


def test_what_is_not_finite_is_left_to_the_reader() -> None:
    found = np.empty(1, np.float32)

    Bfloat16().decode(memoryview(b"\xc0\x7f"), found)

    assert np.isnan(found[0])


def test_float32_comes_back_bit_for_bit() -> None:
    values = np.array([0.1, -0.0, 1e-45, 3e38], np.float32)

    assert there_and_back(Float32(), values).tobytes() == values.tobytes()
