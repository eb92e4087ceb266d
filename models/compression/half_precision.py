"""Write values in 16 bits as bfloat16, or in 32 as they are.

bfloat16 is the upper half of a float32: adding 16 random bits before the lower half is cut off
rounds up as often as the value lies above, so the mean is exact.
"""

import numpy as np

from models.compression.value_coder import PIECE_ELEMENTS, Draws
from models.vector.codec import FlatVector

_BYTES = 2
# The largest float32 whose upper half is finite, as bits, without the sign.
_LARGEST_BFLOAT16 = np.uint32(0x7F7F0000)
_MAGNITUDE, _SIGN = np.uint32(0x7FFFFFFF), np.uint32(0x80000000)


class Bfloat16:
    """A coder of bfloat16."""

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


class Float32:
    """A coder that writes values as they are."""

    def byte_count(self, element_count: int) -> int:
        """Return four bytes a value."""
        return element_count * 4

    def encode(self, values: FlatVector, into: memoryview, draws: Draws | None) -> None:
        """Copy values; see ``ValueCoder``."""
        np.frombuffer(into, "<f4")[:] = values

    def decode(self, coded: memoryview, into: FlatVector) -> None:
        """Copy values; see ``ValueCoder``."""
        into[:] = np.frombuffer(coded, "<f4")
