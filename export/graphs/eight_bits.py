"""Round a matrix to 8 bits: 64 neighbours of a row share one scale, whose zero stays zero.

The layout is that of onnxruntime's operator com.microsoft.MatMulNBits, blocks along a row, the last
one padded: file and graph hold the same bytes. A value w becomes the whole number q nearest to
w / s in [-127, 127], with s = max|w| / 127 over its block; no value moves by more than s / 2.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK = 64
"""Values that share a scale."""

ZERO_POINT = 128
"""The value that stands for zero in unsigned eight-bit numbers."""

_LARGEST = 127


class Rounded(NamedTuple):
    """A rounded matrix.

    Attributes:
        whole: Whole numbers in [-127, 127], padded with 0, int8, shape ``(rows, blocks, 64)``.
        scales: Float32, shape ``(rows, blocks)``.
    """

    whole: NDArray[np.int8]
    scales: NDArray[np.float32]
    columns: int

    def matrix(self) -> NDArray[np.float32]:
        """Return what the rounded values stand for, float32, shape ``(rows, columns)``."""
        blocks = self.whole * self.scales[:, :, np.newaxis]
        return np.ascontiguousarray(blocks.reshape(len(blocks), -1)[:, : self.columns])


def rounded(matrix: NDArray[np.float32]) -> Rounded:
    """Round a matrix, finite, float32, shape ``(rows, columns)``."""
    rows, columns = matrix.shape
    padded = np.zeros((rows, -(-columns // BLOCK) * BLOCK), dtype=np.float32)
    padded[:, :columns] = matrix
    blocks = padded.reshape(rows, -1, BLOCK)
    scales = np.abs(blocks).max(axis=2) / np.float32(_LARGEST)
    # A block of zeros is zeros at any scale.
    divisors = np.where(scales > 0, scales, np.float32(1))[:, :, np.newaxis]
    whole = np.clip(np.rint(blocks / divisors), -_LARGEST, _LARGEST).astype(np.int8)
    return Rounded(whole, scales, columns)
