"""Write values in 16 bits: as bfloat16, rounded at random, or as float16.

bfloat16 is the upper half of a float32: adding 16 random bits before the lower half is cut off
rounds up as often as the value lies above, so the mean is exact. float16 keeps 11 significant bits
up to 65,504 and is always rounded to the nearest, ties to even, as the processor does it.
"""

import numpy as np

from models.compression.value_coder import PIECE_ELEMENTS, Draws
from models.vector.codec import CodecError, FlatVector

_BYTES = 2
_LARGEST_FLOAT16 = 65504.0
# The largest float32 whose upper half is finite, as bits, without the sign.
_LARGEST_BFLOAT16 = np.uint32(0x7F7F0000)
_MAGNITUDE, _SIGN = np.uint32(0x7FFFFFFF), np.uint32(0x80000000)


class Bfloat16:
    """Write and read bfloat16."""

    def byte_count(self, element_count: int) -> int:
        """Return two bytes a value."""
        return element_count * _BYTES

    def encode(self, values: FlatVector, into: memoryview, draws: Draws | None) -> None:
        """Write values; see ``ValueCoder``. Those too large for any become the largest."""
        written = np.frombuffer(into, "<u2")
        for start in range(0, values.size, PIECE_ELEMENTS):
            bits = values[start : start + PIECE_ELEMENTS].view(np.uint32)
            if draws is None:
                # To the nearest, ties to even: just under a half, and one more above an odd number.
                added = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
            else:
                added = draws.take(bits.size).astype(np.uint32)
            magnitude = np.minimum((bits & _MAGNITUDE) + added, _LARGEST_BFLOAT16)
            rounded = (bits & _SIGN) | magnitude
            written[start : start + bits.size] = rounded >> np.uint32(16)

    def decode(self, coded: memoryview, into: FlatVector) -> None:
        """Read values; see ``ValueCoder``."""
        into.view(np.uint32)[:] = np.frombuffer(coded, "<u2").astype(np.uint32) << np.uint32(16)


class Float16:
    """Write and read float16."""

    def byte_count(self, element_count: int) -> int:
        """Return two bytes a value."""
        return element_count * _BYTES

    def encode(self, values: FlatVector, into: memoryview, draws: Draws | None) -> None:
        """Write values, each to the nearest; see ``ValueCoder``.

        Raises:
            CodecError: If a value is above 65,504.
        """
        written = np.frombuffer(into, "<f2")
        for start in range(0, values.size, PIECE_ELEMENTS):
            piece = values[start : start + PIECE_ELEMENTS]
            largest = float(np.abs(piece).max())
            if largest > _LARGEST_FLOAT16:
                raise CodecError(
                    f"float16 holds values up to {_LARGEST_FLOAT16:.0f}, got {largest:.3g}; "
                    'set compression.uplink = "bfloat16"'
                )
            written[start : start + piece.size] = piece

    def decode(self, coded: memoryview, into: FlatVector) -> None:
        """Read values; see ``ValueCoder``."""
        into[:] = np.frombuffer(coded, "<f2")


class Float32:
    """Write and read values as they are."""

    def byte_count(self, element_count: int) -> int:
        """Return four bytes a value."""
        return element_count * 4

    def encode(self, values: FlatVector, into: memoryview, draws: Draws | None) -> None:
        """Copy values; see ``ValueCoder``."""
        np.frombuffer(into, "<f4")[:] = values

    def decode(self, coded: memoryview, into: FlatVector) -> None:
        """Copy values; see ``ValueCoder``."""
        into[:] = np.frombuffer(coded, "<f4")
