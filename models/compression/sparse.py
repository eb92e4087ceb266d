"""Send a part of an update's values, and where they lie.

``top`` sends the k values furthest from zero, of equal ones the first. Their places follow as one
bit for every value of the update or, where that is shorter, as rising numbers of 32 bits.
``random`` sends one value of each of k equal stretches, drawn with a seed of 64 bits, which is all
that is sent of the places. A value's chance is one in the length of its stretch, and lengths differ
by one at most: where few are sent all have nearly the same chance, and none has more than twice
another's. Values that are not sent arrive as 0.

References:
    [Mem-SGD] Stich et al., "Sparsified SGD with Memory", NeurIPS 2018, arXiv:1809.07599: both
        choices, and why they need the memory that error feedback is.
"""

import math
import struct
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from models.compression.value_coder import Draws, ValueCoder
from models.vector.codec import CodecError, FlatVector

Places = NDArray[np.int64]

_SEED = struct.Struct("<Q")
_PLACE_BITS = 32
_DRAW_BITS = np.uint64(32)
_MAGNITUDE = np.uint32(0x7FFFFFFF)


class Choice(Protocol):
    """Choose k of n places, write which they are, and read them back without trusting it."""

    def byte_count(self, n: int, k: int) -> int:
        """Return the bytes that the places take."""
        ...

    def choose(self, values: FlatVector, k: int, into: memoryview, draws: Draws | None) -> Places:
        """Write the places of the values that are sent, and return them, rising.

        Args:
            values: Float32, shape ``(n,)``.
            k: How many are sent, at least 1 and at most n.
            into: Writable memory of ``byte_count(n, k)`` bytes.
            draws: Where a choice at random comes from.
        """
        ...

    def read(self, coded: memoryview, n: int, k: int) -> Places:
        """Return places that were written, rising.

        Raises:
            CodecError: If ``choose`` writes no such bytes.
        """
        ...


class Largest:
    """Choose the values furthest from zero."""

    def byte_count(self, n: int, k: int) -> int:
        """Return the bytes of the shorter way to write the places."""
        return min(k * _PLACE_BITS // 8, -(-n // 8))

    def choose(self, values: FlatVector, k: int, into: memoryview, draws: Draws | None) -> Places:
        """Choose without drawing; see ``Choice``."""
        # Magnitudes of floats are in the order of their bits.
        magnitudes = values.view(np.uint32) & _MAGNITUDE
        least = np.partition(magnitudes, len(values) - k)[len(values) - k]
        sent = magnitudes > least
        equal = np.flatnonzero(magnitudes == least)
        sent[equal[: k - np.count_nonzero(sent)]] = True
        places = np.flatnonzero(sent)
        if self._is_list(len(values), k):
            np.frombuffer(into, "<u4")[:] = places
        else:
            np.frombuffer(into, np.uint8)[:] = np.packbits(sent, bitorder="little")
        return places

    def read(self, coded: memoryview, n: int, k: int) -> Places:
        """Read places from a list or from marks; see ``Choice``."""
        if self._is_list(n, k):
            return _checked_list(np.frombuffer(coded, "<u4").astype(np.int64), n)
        marks = np.unpackbits(np.frombuffer(coded, np.uint8), bitorder="little")
        places = np.flatnonzero(marks)
        if len(places) != k or marks[n:].any():
            raise CodecError(f"{k} of {n} places must be marked, got {len(places)}")
        return places

    def _is_list(self, n: int, k: int) -> bool:
        return k * _PLACE_BITS // 8 < -(-n // 8)


class Drawn:
    """Choose one value of each of k equal stretches at random."""

    def byte_count(self, n: int, k: int) -> int:  # what follows from n and k is not sent
        """Return the bytes of a seed."""
        return _SEED.size

    def choose(self, values: FlatVector, k: int, into: memoryview, draws: Draws | None) -> Places:
        """Draw a seed, and choose with it; see ``Choice``.

        Raises:
            ValueError: If there is nothing to draw from.
        """
        if draws is None:
            raise ValueError("a choice at random needs draws, got none")
        into[:] = draws.take(_SEED.size // 2).astype("<u2").tobytes()
        return self.read(into, len(values), k)

    def read(self, coded: memoryview, n: int, k: int) -> Places:
        """Draw the places again; every seed gives some. See ``Choice``."""
        (seed,) = _SEED.unpack(coded)
        edges = np.arange(k + 1, dtype=np.int64) * n // k
        widths = np.diff(edges).astype(np.uint64)
        numbers = np.random.SFC64(seed).random_raw(k) >> _DRAW_BITS
        return edges[:-1] + ((numbers * widths) >> _DRAW_BITS).astype(np.int64)


class SparseCoder:
    """Write a part of the values with another coder."""

    def __init__(self, choice: Choice, fraction: float, values: ValueCoder) -> None:
        """Choose what is sent.

        Args:
            choice: Which values.
            fraction: How many of them, in (0, 1); rounded up.
            values: Writes those that are sent.
        """
        self._choice = choice
        self._fraction = fraction
        self._values = values

    def byte_count(self, element_count: int) -> int:
        """Return the bytes of places and values."""
        k = self._sent(element_count)
        return self._place_bytes(element_count) + self._values.byte_count(k)

    def encode(self, values: FlatVector, into: memoryview, draws: Draws | None) -> None:
        """Write values, each to the nearest: draws choose the places. See ``ValueCoder``."""
        k, start = self._sent(values.size), self._place_bytes(values.size)
        if k:
            places = self._choice.choose(values, k, into[:start], draws)
            self._values.encode(values[places], into[start:], None)

    def decode(self, coded: memoryview, into: FlatVector) -> None:
        """Read values; see ``ValueCoder``."""
        k, start = self._sent(into.size), self._place_bytes(into.size)
        into[:] = 0
        if k:
            places = self._choice.read(coded[:start], into.size, k)
            sent = np.empty(k, np.float32)
            self._values.decode(coded[start:], sent)
            into[places] = sent

    def _sent(self, element_count: int) -> int:
        return math.ceil(self._fraction * element_count)

    def _place_bytes(self, element_count: int) -> int:
        k = self._sent(element_count)
        return self._choice.byte_count(element_count, k) if k else 0


def _checked_list(places: Places, n: int) -> Places:
    if places[-1] >= n:
        raise CodecError(f"a place must be below {n}, got {places[-1]}")
    steps = np.diff(places)
    if steps.size and steps.min() < 1:
        at = int(steps.argmin())
        raise CodecError(f"places must rise, each once; got {places[at + 1]} after {places[at]}")
    return places
