"""Send the largest of an update's values, and where they lie.

The k values of largest magnitude are sent; among equal ones, the first. Their places come in front
as one bit for every value of the update or, where that is shorter, as rising numbers of 32 bits.
Values that are not sent arrive as 0.

References:
    [Mem-SGD] Stich et al., NeurIPS 2018, arXiv:1809.07599: why this needs error feedback's memory.
"""

import math

import numpy as np
from numpy.typing import NDArray

from models.compression.value_coder import Draws, ValueCoder
from models.vector.codec import CodecError, FlatVector

Places = NDArray[np.int64]

_PLACE_BITS = 32
_MAGNITUDE = np.uint32(0x7FFFFFFF)


class SparseCoder:
    """A coder of the largest values, whose numbers another coder writes."""

    def __init__(self, fraction: float, values: ValueCoder) -> None:
        """Choose the fraction of the values that is sent, in (0, 1); their number is rounded up."""
        self._fraction = fraction
        self._values = values

    def byte_count(self, element_count: int) -> int:
        """Return the bytes of places and values."""
        k = self._sent(element_count)
        return _place_bytes(element_count, k) + self._values.byte_count(k)

    def encode(self, values: FlatVector, into: memoryview, draws: Draws | None) -> None:
        """Write values with the other coder; see ``ValueCoder``."""
        k = self._sent(values.size)
        if k:
            start = _place_bytes(values.size, k)
            places = _write_places(values, k, into[:start])
            self._values.encode(values[places], into[start:], draws)

    def decode(self, coded: memoryview, into: FlatVector) -> None:
        """Read values; see ``ValueCoder``."""
        k = self._sent(into.size)
        into[:] = 0
        if k:
            start = _place_bytes(into.size, k)
            places = _read_places(coded[:start], into.size, k)
            sent = np.empty(k, np.float32)
            self._values.decode(coded[start:], sent)
            into[places] = sent

    def _sent(self, element_count: int) -> int:
        return math.ceil(self._fraction * element_count)


def _place_bytes(n: int, k: int) -> int:
    """Return the bytes of the shorter way to write k of n places."""
    return min(k * _PLACE_BITS // 8, -(-n // 8))


def _is_list(n: int, k: int) -> bool:
    return k * _PLACE_BITS // 8 < -(-n // 8)


def _write_places(values: FlatVector, k: int, into: memoryview) -> Places:
    """Write the places of the k >= 1 largest values and return them, rising."""
    # Magnitudes of floats are in the order of their bits.
    magnitudes = values.view(np.uint32) & _MAGNITUDE
    least = np.partition(magnitudes, len(values) - k)[len(values) - k]
    sent = magnitudes > least
    equal = np.flatnonzero(magnitudes == least)
    sent[equal[: k - np.count_nonzero(sent)]] = True
    places = np.flatnonzero(sent)
    if _is_list(len(values), k):
        np.frombuffer(into, "<u4")[:] = places
    else:
        np.frombuffer(into, np.uint8)[:] = np.packbits(sent, bitorder="little")
    return places


def _read_places(coded: memoryview, n: int, k: int) -> Places:
    """Return k places of n, rising; refuse bytes that ``_write_places`` does not write."""
    if _is_list(n, k):
        return _checked_list(np.frombuffer(coded, "<u4").astype(np.int64), n)
    marks = np.unpackbits(np.frombuffer(coded, np.uint8), bitorder="little")
    places = np.flatnonzero(marks)
    if len(places) != k or marks[n:].any():
        raise CodecError(f"{k} of {n} places must be marked, got {len(places)}")
    return places


def _checked_list(places: Places, n: int) -> Places:
    if places[-1] >= n:
        raise CodecError(f"a place must be below {n}, got {places[-1]}")
    steps = np.diff(places)
    if steps.size and steps.min() < 1:
        at = int(steps.argmin())
        raise CodecError(f"places must rise, each once; got {places[at + 1]} after {places[at]}")
    return places
