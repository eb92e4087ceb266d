"""Write values as whole numbers of 8 or 4 bits with a scale for each block.

A block's scale s is its largest magnitude divided by L, the largest number (127 or 7); a value x
becomes floor(x/s + u). With u drawn from [0, 1) its mean is x and the error is below s; with u =
1/2 it is the nearest number, with an error of at most s/2 and at most |x|. u has 16 bits, a bias of
at most s/65,536.

Bytes: the scales of all blocks, little-endian float32, then the numbers of all blocks, the last one
padded with zeros. Numbers of 4 bits are stored plus 8; a byte holds one of the first half of its
block in its low bits and one of the second half in its high bits.

References:
    [QSGD] Alistarh et al., NeurIPS 2017, arXiv:1610.02132: stochastic rounding. QSGD scales by the
        norm; the largest magnitude, as here, puts as many levels where the values are.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from models.compression.value_coder import PIECE_ELEMENTS, Draws
from models.vector.codec import CodecError, FlatVector

_LEAST_SCALE = np.finfo(np.float32).tiny
_SCALE_BYTES = 4
_OFFSET = 8  # What is added to a number of 4 bits.
_DRAW_STEP = np.float32(2**-16)


class BlockQuantisation:
    """A coder of numbers of one size, a block at a time with one scale."""

    def __init__(self, bits: Literal[4, 8], block_size: int) -> None:
        """Choose a size; ``block_size`` is a power of two that divides ``PIECE_ELEMENTS``."""
        self._bits = bits
        self._block_size = block_size
        self._largest = 2 ** (bits - 1) - 1
        # One below: the quotient may have been rounded up, and its product must not be infinite.
        quotient = np.finfo(np.float32).max / np.float32(self._largest)
        self._largest_scale = np.nextafter(quotient, np.float32(0))

    def byte_count(self, element_count: int) -> int:
        """Return the bytes of scales and numbers."""
        blocks = self._block_count(element_count)
        return blocks * (_SCALE_BYTES + self._block_size * self._bits // 8)

    def encode(self, values: FlatVector, into: memoryview, draws: Draws | None) -> None:
        """Write values; see ``ValueCoder``."""
        scales, numbers = self._parts(into, values.size)
        per_piece = PIECE_ELEMENTS // self._block_size
        work = np.empty((per_piece, self._block_size), np.float32)
        for first in range(0, len(scales), per_piece):
            start = first * self._block_size
            piece = self._blocks(values[start : start + PIECE_ELEMENTS])
            rows = slice(first, first + len(piece))
            scales[rows], signed = self._quantised(piece, work[: len(piece)], draws)
            numbers[rows] = signed.view(np.uint8) if self._bits == 8 else _packed(signed)

    def decode(self, coded: memoryview, into: FlatVector) -> None:
        """Read values, all of them finite; see ``ValueCoder``."""
        scales, numbers = self._parts(coded, into.size)
        _check_scales(scales, self._largest_scale)
        per_piece = PIECE_ELEMENTS // self._block_size
        for first in range(0, len(scales), per_piece):
            rows = slice(first, first + per_piece)
            stored = numbers[rows]
            signed = stored.view(np.int8) if self._bits == 8 else _unpacked(stored)
            self._check_numbers(signed)
            start = first * self._block_size
            piece = into[start : start + signed.size]
            if piece.size == signed.size:
                target = piece.reshape(signed.shape)
                np.multiply(signed, scales[rows, None], out=target, dtype=np.float32)
            else:
                whole = np.multiply(signed, scales[rows, None], dtype=np.float32).reshape(-1)
                if signed.reshape(-1)[piece.size :].any():
                    raise CodecError("numbers after the last value must be 0")
                piece[:] = whole[: piece.size]

    def _quantised(
        self, piece: FlatVector, work: FlatVector, draws: Draws | None
    ) -> tuple[FlatVector, NDArray[np.int8]]:
        """Return a piece's scales, shape ``(blocks,)``, and numbers, ``(blocks, block_size)``."""
        largest = np.maximum(piece.max(axis=1), -piece.min(axis=1))
        # A block of zeros has the least scale: no scale is ever 0.
        quotients = largest / np.float32(self._largest)
        scales = np.clip(quotients, _LEAST_SCALE, self._largest_scale)
        np.multiply(piece, (np.float32(1) / scales)[:, None], out=work)
        if draws is None:
            np.rint(work, out=work)
        else:
            work += draws.take(piece.size).reshape(piece.shape) * _DRAW_STEP
            np.floor(work, out=work)
        # The quotient of the largest value may round to more than the largest number.
        np.clip(work, -self._largest, self._largest, out=work)
        return scales, work.astype(np.int8)

    def _blocks(self, values: FlatVector) -> FlatVector:
        """Return a piece as rows of a block each, the last one filled up with zeros."""
        missing = -values.size % self._block_size
        whole = np.concatenate([values, np.zeros(missing, np.float32)]) if missing else values
        return whole.reshape(-1, self._block_size)

    def _block_count(self, element_count: int) -> int:
        return -(-element_count // self._block_size)

    def _parts(
        self, memory: memoryview, element_count: int
    ) -> tuple[FlatVector, NDArray[np.uint8]]:
        blocks = self._block_count(element_count)
        scales: FlatVector = np.frombuffer(memory, "<f4", count=blocks)
        numbers = np.frombuffer(memory, np.uint8, offset=blocks * _SCALE_BYTES)
        return scales, numbers.reshape(blocks, self._block_size * self._bits // 8)

    def _check_numbers(self, signed: NDArray[np.int8]) -> None:
        if signed.size and signed.min() < -self._largest:
            raise CodecError(f"numbers must be >= {-self._largest}, got {signed.min()}")


def _check_scales(scales: FlatVector, largest: np.float32) -> None:
    # Written so that NaN is refused too.
    usable = (scales >= _LEAST_SCALE) & (scales <= largest)
    if not usable.all():
        block = int(usable.argmin())
        raise CodecError(
            f"a scale must lie in [{_LEAST_SCALE:.3g}, {largest:.3g}], "
            f"got {scales[block]} in block {block}"
        )


def _packed(signed: NDArray[np.int8]) -> NDArray[np.uint8]:
    stored = (signed + np.int8(_OFFSET)).view(np.uint8)
    half = stored.shape[1] // 2
    return stored[:, :half] | (stored[:, half:] << np.uint8(4))


def _unpacked(packed: NDArray[np.uint8]) -> NDArray[np.int8]:
    halves = np.concatenate([packed & np.uint8(15), packed >> np.uint8(4)], axis=1)
    return halves.view(np.int8) - np.int8(_OFFSET)
