"""Integers of 16, 20, 24 or 32 bits packed without gaps, and added again from that form.

First come the low 16 bits of every element, then the bits above them: nothing, a nibble, a byte or
two bytes an element, all little-endian. Of the nibbles, byte j holds that of element j in its low
half and in its high half that of element j + h, h being half the elements rounded up. Planes are
read as fast as memory allows, where elements of three bytes are not. An odd count leaves the last
high nibble empty: it is zero, and another is refused, so a vector has one packed form.
"""

import numpy as np
from numpy.typing import NDArray

PACKED_BITS = (16, 20, 24, 32)

_LOW_BITS = 16
_NIBBLE = 20
_BYTE = 24
# Elements converted at a time: they stay in cache.
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
    # A conversion to fewer bits keeps the lowest ones.
    packed[: 2 * count].view("<u2")[:] = values
    above = packed[2 * count :]
    if bits == _NIBBLE:
        half = (count + 1) // 2
        _put_above(above, values[:half])
        _put_above(above[: count - half], values[half:], beside=4)
    elif bits > _LOW_BITS:
        _put_above(_words(above, bits), values)
    return packed.data


def unpack(data: bytes | memoryview, count: int, bits: int) -> NDArray[np.uint32]:
    """Return the ``count`` elements packed in ``data``, each below 2^bits.

    Raises:
        ValueError: If ``bits`` is not in ``PACKED_BITS``, the length is not that of ``count``
            elements, or an empty nibble is not zero.
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
    low, above = packed[: 2 * count].view("<u2"), packed[2 * count :]
    if bits == _NIBBLE:
        half = (count + 1) // 2
        if count % 2 and int(above[-1]) >> 4:
            raise ValueError("the nibble behind an odd number of packed elements must be zero")
        _add(total[:half], low[:half], above, nibble=0)
        _add(total[half:], low[half:], above[: count - half], nibble=4)
    else:
        _add(total, low, _words(above, bits) if bits > _LOW_BITS else None)


def _words(above: NDArray[np.uint8], bits: int) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """Return the bits above the low halves as what they are: bytes, or two of them an element."""
    return above if bits == _BYTE else above.view("<u2")


def _put_above(
    above: NDArray[np.uint8] | NDArray[np.uint16], values: NDArray[np.uint32], *, beside: int = 0
) -> None:
    """Write the bits above the low halves, or add them beside as many bits that are there."""
    for start in range(0, len(values), _BLOCK):
        words = values[start : start + _BLOCK] >> np.uint32(_LOW_BITS)
        place = above[start : start + _BLOCK]
        if beside:
            words <<= np.uint32(beside)
            words |= place
        place[:] = words


def _add(
    total: NDArray[np.uint32],
    low: NDArray[np.uint16],
    above: NDArray[np.uint8] | NDArray[np.uint16] | None,
    *,
    nibble: int | None = None,
) -> None:
    """Add low halves and the bits above them: all of ``above``, or the nibble at a bit of it."""
    memory = np.empty(_BLOCK, dtype=np.uint32)
    for start in range(0, len(total), _BLOCK):
        block = total[start : start + _BLOCK]
        words = memory[: len(block)]
        if above is not None:
            words[:] = above[start : start + _BLOCK]
            if nibble is not None:
                words >>= np.uint32(nibble)
                words &= np.uint32(15)
            words <<= np.uint32(_LOW_BITS)
            block += words
        words[:] = low[start : start + _BLOCK]
        block += words
