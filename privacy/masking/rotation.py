r"""A fixed rotation that spreads each message evenly over its elements, so that sums need few bits.

One element of a keyboard's update, the bias of a frequent word, can hold 0.4 of the update's norm,
and the width of a sum must hold M such elements, unless a device cuts them off. Rotated, no element
of a vector is much larger than norm / sqrt(elements) ([Kairouz]). A rotation is
orthogonal: norms, distances and noise of equal variance everywhere stay what they are, and the sum
is rotated back once.

Blocks of B = 2^k elements are multiplied by signs and by the Hadamard matrix over sqrt(B); the last
elements, which fill no block, are covered by a further block that overlaps the one before. With
signs that do not depend on a vector y, each element of the outcome is a sum of +-y_j / sqrt(B), so
by Hoeffding's inequality it exceeds t |y| / sqrt(B) with a chance of at most 2 e^(-t^2 / 2). The
signs are public and the same for all: a device that builds its message against them can at most
spoil the sum, which every device can.

Only additions, subtractions and one multiplication an element: the same bits on every machine.

References:
    [Kairouz] Kairouz, Liu, Steinke, "The distributed discrete Gaussian mechanism for federated
        learning with secure aggregation", ICML 2021, arXiv:2102.06387.
"""

import hashlib
import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

# The largest block: half a MiB of float64, which stays in cache.
_LARGEST_BITS = 16
_SIGNS = b"sotto rotation signs 1"


def rotation_block(element_count: int) -> int:
    """Return B, the elements over which a vector of ``element_count`` >= 1 spreads one of them."""
    return 1 << min(_LARGEST_BITS, element_count.bit_length() - 1)


def rotate(values: NDArray[np.float64]) -> None:
    """Rotate a contiguous vector, shape ``(elements,)``, elements >= 1, in place."""
    for block, signs in _blocks(values):
        np.multiply(block, signs, out=block)
        _transform(block)


def rotate_back(values: NDArray[np.float64]) -> None:
    """Undo ``rotate`` in place, up to the rounding of float64."""
    for block, signs in reversed(_blocks(values)):
        _transform(block, back=True)
        np.multiply(block, signs, out=block)


def _blocks(
    values: NDArray[np.float64],
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return the blocks with their signs over sqrt(B), in the order of rotation."""
    size = rotation_block(len(values))
    whole, last = _signs(size)
    blocks = [(values[at : at + size], whole) for at in range(0, len(values) - size + 1, size)]
    if len(values) % size:
        blocks.append((values[-size:], last))
    return blocks


@lru_cache(maxsize=4)
def _signs(size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return signs over sqrt(size) for the whole blocks and for the one that overlaps."""
    count = max(size, 8)
    random = np.frombuffer(hashlib.shake_256(_SIGNS).digest(2 * count // 8), dtype=np.uint8)
    signs = (1.0 - 2.0 * np.unpackbits(random).astype(np.float64)) / math.sqrt(size)
    return signs[:size], signs[count : count + size]


def _transform(block: NDArray[np.float64], *, back: bool = False) -> None:
    """Apply the Hadamard matrix to a block, in place.

    A matrix X of the block's elements becomes H X^T H, by additions over columns, which are
    neighbours in memory; ``back`` starts from the transposed shape and returns to X.
    """
    bits = len(block).bit_length() - 1
    rows, columns = 1 << bits // 2, 1 << bits - bits // 2
    if back:
        rows, columns = columns, rows
    matrix = block.reshape(rows, columns)
    _add_and_subtract(matrix)
    turned = matrix.T.copy()
    _add_and_subtract(turned)
    block[:] = turned.reshape(-1)


def _add_and_subtract(matrix: NDArray[np.float64]) -> None:
    """Apply the Hadamard matrix to every column, in place, by the fast Walsh transform."""
    rows, columns = matrix.shape
    memory = np.empty(rows * columns // 2)
    half = 1
    while half < rows:
        pairs = matrix.reshape(rows // (2 * half), 2, half * columns)
        upper, lower = pairs[:, 0], pairs[:, 1]
        difference = memory.reshape(upper.shape)
        np.subtract(upper, lower, out=difference)
        upper += lower
        lower[:] = difference
        half *= 2
