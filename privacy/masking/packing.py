"""Integers of 16, 20, 24 or 32 bits packed without gaps, and added again from that form.

Element j's bits follow those of element j - 1 in one little-endian stream of bits: bit i of the
stream is bit i % 8 of byte i // 8. The bits that fill the last byte are zero, and other fillings
are refused, so a vector has one packed form.
"""

import math

import numpy as np
from numpy.typing import NDArray

PACKED_BITS = (16, 20, 24, 32)

_WORD = 32
# Elements packed at a time: a multiple of every group, and their bytes stay in cache.
_BLOCK = 1 << 15


def packed_bytes(count: int, bits: int) -> int:
    """Return the bytes that ``count`` >= 0 packed elements take.

    Raises:
        ValueError: If ``bits`` is not in ``PACKED_BITS`` or the count is negative.
    """
    if bits not in PACKED_BITS:
        raise ValueError(f"bits must be one of {PACKED_BITS}, got {bits}")
    if count < 0:
        raise ValueError(f"count must be >= 0, got {count}")
    return -(-count * bits // 8)


def pack(values: NDArray[np.uint32], bits: int) -> memoryview:
    """Return the packed bytes of elements below 2^bits, shape ``(elements,)``.

    Raises:
        ValueError: If ``bits`` is not in ``PACKED_BITS`` or an element does not fit.
    """
    count = len(values)
    packed = np.empty(packed_bytes(count, bits), dtype=np.uint8)
    largest = int(values.max(initial=0))
    if largest >> bits:
        raise ValueError(f"an element packed in {bits} bits must be < 2^{bits}, got {largest}")
    group, words = _group(bits)
    for start in range(0, count, _BLOCK):
        block = values[start : start + _BLOCK]
        whole = -(-len(block) // group)
        padded = np.zeros((whole, group), dtype=np.uint32)
        padded.reshape(-1)[: len(block)] = block
        out = np.zeros((whole, words), dtype="<u4")
        for column in range(group):
            word, shift = divmod(column * bits, _WORD)
            out[:, word] |= padded[:, column] << np.uint32(shift)
            if shift + bits > _WORD:
                out[:, word + 1] |= padded[:, column] >> np.uint32(_WORD - shift)
        size = packed_bytes(len(block), bits)
        first = packed_bytes(start, bits)
        packed[first : first + size] = out.reshape(-1).view(np.uint8)[:size]
    return packed.data


def unpack(data: bytes | memoryview, count: int, bits: int) -> NDArray[np.uint32]:
    """Return the ``count`` elements packed in ``data``, each below 2^bits.

    Raises:
        ValueError: If ``bits`` is not in ``PACKED_BITS``, the length is not that of ``count``
            elements, or the bits that fill the last byte are not zero.
    """
    values = np.zeros(count, dtype=np.uint32)
    add_packed(values, data, bits=bits)
    return values


def add_packed(total: NDArray[np.uint32], data: bytes | memoryview, *, bits: int) -> None:
    """Add packed elements to a sum that wraps at 2^32, in place, without unpacking them first.

    The caller reduces the sum modulo 2^bits once, after the last. Raises ValueError as ``unpack``
    does, and then the sum is unchanged.
    """
    count = len(total)
    packed = np.frombuffer(data, dtype=np.uint8)
    if len(packed) != packed_bytes(count, bits):
        raise ValueError(
            f"{count} elements of {bits} bits take {packed_bytes(count, bits)} bytes, "
            f"got {len(packed)}"
        )
    used = count * bits % 8
    if used and int(packed[-1]) >> used:
        raise ValueError("the bits that fill the last packed byte must be zero")
    group, words = _group(bits)
    mask = np.uint32((1 << bits) - 1)
    for start in range(0, count, _BLOCK):
        block = total[start : start + _BLOCK]
        first, size = packed_bytes(start, bits), packed_bytes(len(block), bits)
        source, whole = packed[first : first + size], len(block) // group
        columns = source[: whole * words * 4].view("<u4").reshape(whole, words)
        _add_groups(block[: whole * group].reshape(whole, group), columns, bits, mask)
        if rest := len(block) - whole * group:
            # The last, broken group is filled with zeros.
            end = np.zeros(words * 4, dtype=np.uint8)
            tail = source[whole * words * 4 :]
            end[: len(tail)] = tail
            values = np.zeros((1, group), dtype=np.uint32)
            _add_groups(values, end.view("<u4").reshape(1, words), bits, mask)
            block[whole * group :] += values[0, :rest]


def _group(bits: int) -> tuple[int, int]:
    """Return how many elements fill how many whole words."""
    shared = math.gcd(bits, _WORD)
    return _WORD // shared, bits // shared


def _add_groups(
    total: NDArray[np.uint32], packed: NDArray[np.uint32], bits: int, mask: np.uint32
) -> None:
    """Add groups, shape ``(groups, words)``, to their elements, shape ``(groups, group)``."""
    for column in range(total.shape[1]):
        word, shift = divmod(column * bits, _WORD)
        value = packed[:, word] >> np.uint32(shift)
        if shift + bits > _WORD:
            value |= packed[:, word + 1] << np.uint32(_WORD - shift)
        if bits < _WORD and shift + bits != _WORD:
            value &= mask
        total[:, column] += value
