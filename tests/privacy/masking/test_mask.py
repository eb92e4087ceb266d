"""Devices' masked messages, summed by one party and unmasked by two."""

import dataclasses

import numpy as np
import pytest

from privacy.masking.grid import Messages, add_share, finest_grid, to_grid
from privacy.masking.keystream import keystream_sum
from privacy.masking.mask import masked, unmasked
from privacy.masking.packing import PACKED_BITS, add_packed, unpack

DEVICES = 6
MESSAGES = Messages(
    element_count=1001,
    norm=1.0,
    sensitivity=1.0,
    contributors=DEVICES,
    noise_multiplier=0.5,
    honest=4,
)


def messages(bits: int, count: int = DEVICES) -> list[np.ndarray]:
    """Return rounded messages with noise, each with two check elements that hold 1."""
    grid = finest_grid(dataclasses.replace(MESSAGES, contributors=DEVICES), bits)
    generator = np.random.default_rng(5)
    found = []
    for _ in range(count):
        message = generator.normal(size=grid.element_count)
        message /= np.linalg.norm(message)
        values = to_grid(message, grid, generator.bytes(32))
        add_share(values, grid, generator.bytes(32))
        found.append(np.concatenate([values, [1, 1]]))
    return found


def summed(uploads: list[memoryview], bits: int) -> np.ndarray:
    """Return the sum of packed messages, before it is reduced."""
    total = np.zeros(1003, dtype=np.uint32)
    for upload in uploads:
        add_packed(total, upload, bits=bits)
    return total


@pytest.mark.parametrize("bits", PACKED_BITS)
def test_a_sum_under_masks_is_the_sum_without_them_in_any_order(bits: int) -> None:
    sent, seeds = messages(bits), [bytes([device]) * 32 for device in range(DEVICES)]
    uploads = [masked(one, seed, bits=bits) for one, seed in zip(sent, seeds, strict=True)]

    total = unmasked(summed(uploads[::-1], bits), keystream_sum(seeds, 1003, bits), bits=bits)

    assert np.array_equal(total, (sum(sent) % 2**bits).astype(np.uint32))
    assert total[-2:].tolist() == [DEVICES, DEVICES]


@pytest.mark.parametrize("bits", PACKED_BITS)
def test_a_missing_keystream_leaves_noise_in_the_check_elements(bits: int) -> None:
    sent, seeds = messages(bits), [bytes([device]) * 32 for device in range(DEVICES)]
    uploads = [masked(one, seed, bits=bits) for one, seed in zip(sent, seeds, strict=True)]

    total = unmasked(summed(uploads, bits), keystream_sum(seeds[1:], 1003, bits), bits=bits)

    assert total[-2:].tolist() != [DEVICES, DEVICES]


@pytest.mark.parametrize("bits", PACKED_BITS)
def test_an_upload_looks_the_same_whatever_it_hides(bits: int) -> None:
    # A constant message of 40,000 elements: its top nibbles under a mask are even. Chi-square
    # with 15 degrees of freedom exceeds 60 for one seed in 5 million, and this one is fixed.
    values = np.full(40_000, 3, dtype=np.int64)

    upload = unpack(masked(values, bytes(range(32)), bits=bits), 40_000, bits)

    observed = np.bincount(upload >> np.uint32(bits - 4), minlength=16)
    assert ((observed - 2500.0) ** 2 / 2500).sum() < 60
