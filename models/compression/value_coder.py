"""Write the values of an update in fewer bytes, and read them back without trusting them.

A coder knows no schema and no file: it turns a float32 vector into a number of bytes that follows
from its length alone. The bytes that it reads may come from anybody; a ``CodecError`` refuses those
that no ``encode`` writes.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from models.vector.codec import FlatVector

PIECE_ELEMENTS = 1 << 16
"""Values that are worked on at one time: they and what is made of them stay in the cache."""

_DRAWS_PER_WORD = 4


class ValueCoder(Protocol):
    """A coder that turns values into bytes and back."""

    def byte_count(self, element_count: int) -> int:
        """Return the coded size of so many values in bytes."""

    def encode(self, values: FlatVector, into: memoryview, draws: "Draws | None") -> None:
        """Write finite float32 values, shape ``(elements,)``, as ``byte_count(elements)`` bytes.

        ``draws`` rounds at random; None rounds to the nearest.
        """

    def decode(self, coded: memoryview, into: FlatVector) -> None:
        """Read values into a float32 vector of shape ``(elements,)``.

        They may be NaN or infinite if the form has such values; the reader must check.
        """


class Draws:
    """A stream of numbers of 16 bits, the same for the same seed on every machine."""

    def __init__(self, seed: int) -> None:
        """Start a stream from ``client_seed(..., "rounding")`` of ``models.vector.seeds``."""
        self._bits = np.random.SFC64(seed)

    def take(self, count: int) -> NDArray[np.uint16]:
        """Return the next numbers, uint16, shape ``(count,)``."""
        words = self._bits.random_raw(-(-count // _DRAWS_PER_WORD))
        # The order of the draws must not depend on the machine's byte order.
        return np.asarray(words).astype("<u8", copy=False).view("<u2")[:count]
