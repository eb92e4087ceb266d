"""Keystreams against single AES blocks, and sums in which masks cancel."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from privacy.masking.keystream import SEED_BYTES, add_keystream, keystream_sum

SEED = bytes(range(32))
# More than two blocks of the implementation, and no whole number of AES blocks.
COUNT = 70_003


def expected_word(seed: bytes, index: int) -> int:
    """Return one word of the keystream from one AES block: SP 800-38A's counter mode."""
    counter = (index // 4).to_bytes(16, "big")
    block = Cipher(algorithms.AES(seed), modes.ECB()).encryptor().update(counter)  # noqa: S305
    return int.from_bytes(block[index % 4 * 4 :][:4], "little")


@pytest.mark.parametrize("bits", [16, 20, 24, 32])
@pytest.mark.parametrize("index", [0, 3, 4, 32_767, 32_768, 65_536, COUNT - 1])
def test_an_element_is_a_little_endian_word_of_aes_in_counter_mode(bits: int, index: int) -> None:
    total = np.full(COUNT, 5, dtype=np.uint32)

    add_keystream(total, SEED, bits=bits)

    assert int(total[index]) == (expected_word(SEED, index) + 5) % 2**bits


@pytest.mark.parametrize("bits", [16, 20, 24, 32])
def test_masks_leave_a_sum_with_the_sum_of_their_keystreams(bits: int) -> None:
    generator = np.random.default_rng(1)
    seeds = [generator.bytes(SEED_BYTES) for _ in range(5)]
    messages = generator.integers(0, 2**bits, (5, COUNT), dtype=np.uint64).astype(np.uint32)
    total = np.zeros(COUNT, dtype=np.uint32)
    for seed, message in zip(seeds, messages, strict=True):
        add_keystream(message, seed, bits=bits)
        total += message
        add_keystream(message, seed, bits=bits, sign=-1)

    total -= keystream_sum(seeds, COUNT, bits)

    expected = messages.astype(np.uint64).sum(axis=0) % 2**bits
    assert np.array_equal(total % np.uint64(2**bits), expected)


@pytest.mark.parametrize("parts", [2, 3, 16])
def test_a_sum_made_in_parts_is_the_sum(parts: int) -> None:
    seeds = [SEED, bytes(32)]
    done = []

    def backwards(works: Sequence[Callable[[], None]]) -> None:
        for work in reversed(works):
            work()
            done.append(work)

    in_parts = keystream_sum(seeds, 3 * COUNT, 24, parts=parts, run=backwards)

    assert np.array_equal(in_parts, keystream_sum(seeds, 3 * COUNT, 24))
    # 210,009 elements are seven blocks of 32,768.
    assert len(done) == {2: 2, 3: 3, 16: 7}[parts]
    with pytest.raises(ValueError, match="must have 32 bytes"):
        keystream_sum([bytes(31)], 0, 24, parts=parts)


def test_a_mask_reduced_has_every_value_equally_often() -> None:
    # 16 bits: the top four bits of 70,003 elements in 16 cells; chi-square with 15 degrees of
    # freedom exceeds 60 once in 5 million seeds, and this one is fixed.
    words = keystream_sum([SEED], COUNT, 16)

    observed = np.bincount(words >> 12, minlength=16)
    assert ((observed - COUNT / 16) ** 2 / (COUNT / 16)).sum() < 60


@pytest.mark.parametrize(
    ("seed", "bits", "sign", "rule"),
    [
        (bytes(31), 24, 1, "must have 32 bytes, got 31"),
        (SEED, 0, 1, "bits must be in 1..32, got 0"),
        (SEED, 33, 1, "bits must be in 1..32, got 33"),
        (SEED, 24, 2, "sign must be 1 or -1, got 2"),
    ],
)
def test_what_is_no_mask_is_refused(seed: bytes, bits: int, sign: int, rule: str) -> None:
    total = np.zeros(3, dtype=np.uint32)

    with pytest.raises(ValueError, match=rule):
        add_keystream(total, seed, bits=bits, sign=sign)

    assert not total.any()
