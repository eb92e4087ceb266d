"""Masks: a keystream of AES-256 in counter mode for each seed, added modulo 2^bits.

An element's mask is one little-endian uint32 of the keystream, reduced modulo 2^bits. As 2^bits
divides 2^32, sums may wrap at 2^32 and are reduced once, at the end. A seed is used for one message
and never again, so the counter starts at zero.

References:
    [SP 800-38A] NIST, "Recommendation for Block Cipher Modes of Operation", 2001, section 6.5.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

SEED_BYTES = 32

# Elements worked on at a time: 128 KiB of keystream and as much of the sum stay in cache.
_BLOCK = 1 << 15
_MOST_BITS = 32
# Elements that one value of the counter makes: a block of AES has 16 bytes.
_ELEMENTS_A_COUNT = 4

Run = Callable[[Sequence[Callable[[], None]]], None]
"""Do all of the work, in any order or side by side."""


def _in_turn(works: Sequence[Callable[[], None]]) -> None:
    for work in works:
        work()


def add_keystream(total: NDArray[np.uint32], seed: bytes, *, bits: int, sign: int = 1) -> None:
    """Add one seed's keystream to a vector modulo 2^bits, in place, or with sign -1 take it out.

    Args:
        total: Elements modulo 2^bits, contiguous, shape ``(elements,)``.
        seed: ``SEED_BYTES`` secret bytes, fresh for each message.
        bits: Width of an element, 1 to 32.
        sign: 1 or -1.

    Raises:
        ValueError: If the seed has another length, or bits or sign are not among these.
    """
    _add(total, (seed,), bits=bits, sign=sign)


def keystream_sum(
    seeds: Sequence[bytes],
    count: int,
    bits: int,
    *,
    parts: int = 1,
    run: Run = _in_turn,
) -> NDArray[np.uint32]:
    """Return the sum modulo 2^bits of the seeds' keystreams, shape ``(count,)``.

    ``run`` does the work in ``parts``, which any threads may do side by side. Memory is the answer
    and two blocks a part, whatever the number of seeds. Raises ValueError as ``add_keystream``.
    """
    total = np.zeros(count, dtype=np.uint32)
    size = max(1, -(-count // (_BLOCK * parts))) * _BLOCK
    run(
        [
            partial(_add, total[start : start + size], seeds, bits=bits, sign=1, first=start)
            # Once for no element too: seeds are checked.
            for start in range(0, max(1, count), size)
        ]
    )
    return total


def reduce_modulo(values: NDArray[np.uint32], bits: int) -> None:
    """Reduce every element modulo 2^bits, in place."""
    if bits < _MOST_BITS:
        np.bitwise_and(values, np.uint32((1 << bits) - 1), out=values)


def counter_mode(key: bytes, counter: int) -> CipherContext:
    """Return AES-256 in counter mode from a 128-bit counter on; it encrypts zeros to keystream."""
    return Cipher(algorithms.AES(key), modes.CTR(counter.to_bytes(16, "big"))).encryptor()


def _add(
    total: NDArray[np.uint32], seeds: Sequence[bytes], *, bits: int, sign: int, first: int = 0
) -> None:
    """Add all seeds' keystreams block by block, so that a block is read from memory once.

    They begin at their element ``first``, that of a block.
    """
    for seed in seeds:
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a mask's seed must have {SEED_BYTES} bytes, got {len(seed)}")
    if not 1 <= bits <= _MOST_BITS:
        raise ValueError(f"bits must be in 1..{_MOST_BITS}, got {bits}")
    if sign not in {1, -1}:
        raise ValueError(f"sign must be 1 or -1, got {sign}")
    combine = np.add if sign == 1 else np.subtract
    streams = [counter_mode(seed, first // _ELEMENTS_A_COUNT) for seed in seeds]
    zeros = bytes(4 * _BLOCK)
    # update_into writes whole blocks and asks for room for one more cipher block.
    memory = bytearray(4 * _BLOCK + 16)
    keystream = np.frombuffer(memory, dtype="<u4", count=_BLOCK)
    for start in range(0, len(total), _BLOCK):
        block = total[start : start + _BLOCK]
        size = 4 * len(block)
        for stream in streams:
            stream.update_into(memoryview(zeros)[:size], memory)
            combine(block, keystream[: len(block)], out=block)
        reduce_modulo(block, bits)
