"""Releases as what changed: exact, small where it can be, and never taken for another."""

import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from models.compression.release_delta import (
    decode_delta,
    delta_sha256,
    encode_delta,
    largest_delta,
)
from models.vector.codec import CodecError, FlatVector
from models.vector.schema import Schema, TensorSpec
from server.closing.release_steps import round_at_random, round_to_nearest

COUNT = 1000
STEP = 2.0**-10


def schema_of(count: int, layer: str = "a") -> Schema:
    return Schema((TensorSpec(name="a", shape=(count,), layer=layer),))


SCHEMA = schema_of(COUNT)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def steps(counts: object) -> FlatVector:
    """Return so many steps of 2^-10 each, which float32 holds exactly."""
    return np.asarray(np.asarray(counts, np.float64) * STEP, np.float32)


@given(arrays.arrays(np.float32, (2, 7), elements=FLOATS), st.booleans())
def test_any_release_comes_back_bit_by_bit_from_any_other_and_from_none(
    both: FlatVector, has_step: bool
) -> None:
    schema, step = schema_of(7), STEP if has_step else None

    for base in (None, both[0]):
        payload = encode_delta(schema, base, both[1], step)
        found = decode_delta(schema, base, payload, step)
        assert found.tobytes() == both[1].tobytes()


@given(st.lists(st.integers(-(2**23), 2**23), min_size=1, max_size=20), st.data())
def test_multiples_of_the_step_come_back_from_each_other(
    counts: list[int], data: st.DataObject
) -> None:
    moved = data.draw(st.lists(st.integers(-(2**23), 2**23), min_size=len(counts)))
    schema, base = schema_of(len(counts)), steps(counts)
    target = steps(moved[: len(counts)])

    payload = encode_delta(schema, base, target, STEP)

    assert payload[12] == 1  # Told in steps.
    assert decode_delta(schema, base, payload, STEP).tobytes() == target.tobytes()


def test_a_release_that_moved_by_few_steps_takes_few_bytes() -> None:
    # Every value moves by -1, 0 or 1 step: log2(3) bits each say all there is to say.
    draws = np.random.default_rng(1)
    base = steps(draws.integers(-1000, 1000, 20 * COUNT))
    target = base + steps(draws.integers(-1, 2, 20 * COUNT))
    schema = schema_of(20 * COUNT)

    moved = len(encode_delta(schema, base, target, STEP))
    whole = len(encode_delta(schema, None, target, STEP))

    # 1.58 of 32 bits; zstd comes within 30 %, and sizes are rounded up by at most 12 %.
    assert 0.049 < moved / schema.payload_bytes < 0.07
    # 2,000 different values are 11 bits.
    assert 0.34 < whole / schema.payload_bytes < 0.42
    assert whole <= largest_delta(schema)


@pytest.mark.parametrize("odd", [0.3 * STEP, -0.0, 1e30])
def test_a_value_that_is_no_count_of_steps_is_told_by_bits(odd: float) -> None:
    base, target = steps(np.arange(COUNT)), steps(np.arange(COUNT) + 1)
    target[7] = odd

    payload = encode_delta(SCHEMA, base, target, STEP)

    assert payload[12] == 0
    assert decode_delta(SCHEMA, base, payload, STEP).tobytes() == target.tobytes()


@pytest.mark.parametrize(
    ("offset", "value", "text"),
    [
        (0, b"SOTTOPAR", "must start with b'SOTTODLT'"),
        (8, struct.pack("<I", 2), "must be 1, got 2; this side is older"),
        (12, struct.pack("<I", 2), "form of a moved release must be 0 or 1, got 2"),
        (16, bytes(32), "the payload belongs to another model"),
        (48, struct.pack("<Q", 2**40), "must be filled up|at most"),
        (60, bytes(8), "zstd|unpack"),
    ],
)
def test_a_damaged_payload_is_refused(offset: int, value: bytes, text: str) -> None:
    base, target = steps(np.arange(COUNT)), steps(np.arange(COUNT) + 1)
    payload = bytearray(encode_delta(SCHEMA, base, target, STEP))
    payload[offset : offset + len(value)] = value

    with pytest.raises(CodecError, match=text):
        decode_delta(SCHEMA, base, payload, STEP)


def test_what_does_not_fit_is_refused() -> None:
    payload = encode_delta(SCHEMA, None, steps(np.arange(COUNT)), STEP)

    with pytest.raises(CodecError, match="names no downlink_step"):
        decode_delta(SCHEMA, None, payload, None)
    with pytest.raises(CodecError, match="another model"):
        decode_delta(schema_of(COUNT, "b"), None, payload, STEP)
    with pytest.raises(CodecError, match=r"of shape \(1000,\), got float32 of shape \(7,\)"):
        encode_delta(SCHEMA, np.zeros(7, np.float32), steps(np.arange(COUNT)), STEP)
    for wrong in (payload[:-1], payload + b"\0", payload[:48]):
        with pytest.raises(CodecError):
            decode_delta(SCHEMA, None, wrong, STEP)


def test_a_way_names_whence_it_leads() -> None:
    one, other = bytes(range(32)), bytes(reversed(range(32)))

    names = {delta_sha256(SCHEMA, base) for base in (None, one, other)} | {SCHEMA.sha256}

    assert len(names) == 4


def test_rounding_at_random_is_right_in_the_mean_and_never_off_by_a_step() -> None:
    values = torch.full((100_000,), -0.3 * STEP)

    found = round_at_random(values, STEP, torch.Generator().manual_seed(1))

    # Three of ten go a step down: the count's standard deviation is 145.
    assert set(found.tolist()) == {0.0, -STEP}
    assert abs(int((found != 0).sum()) - 30_000) < 600
    assert bool((round_at_random(found, STEP, torch.Generator()) == found).all())


def test_large_values_and_zeros_stay_as_they_are_when_rounded() -> None:
    values = torch.tensor([1e30, -3e38, 2.0**20 + 0.125, 0.0, -0.0])

    found = round_at_random(values, STEP, torch.Generator().manual_seed(1))

    assert found.tolist() == values.tolist()
    assert found.numpy().tobytes() == (values + 0.0).numpy().tobytes()  # No zero below zero.
    assert round_to_nearest(torch.tensor([0.4, -0.4, 0.6, -1.5]), 1.0).tolist() == [0, 0, 1, -2]
