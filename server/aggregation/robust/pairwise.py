"""Distances between all updates of a cohort, gathered chunk by chunk.

Those from weighted means follow from inner products: |D_k - Σ w_j D_j|² = G_kk - 2 (Gw)_k + wᵀGw.
So an iterative rule reads the updates once for G, and iterates on cohort x cohort numbers.
"""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Matrix = NDArray[np.float64]

# Elements of each update that are multiplied at a time, as float64: a hundred clients' are 6 MiB.
_BLOCK = 1 << 13


class InnerProducts:
    """The sum G = D Dᵀ in float64, whose rounding no distance between updates feels."""

    def __init__(self) -> None:
        self._gram: Matrix | None = None

    def add(self, rows: Tensor, beside: Tensor | None = None) -> None:
        """Add one chunk of every update, float32, shape ``(cohort, chunk elements)``.

        ``beside`` is a last row to compare them with, float32, always there or never.
        """
        count, length = rows.shape
        total = count + (beside is not None)
        if self._gram is None:
            self._gram = np.zeros((total, total))
        memory = np.empty((total, min(_BLOCK, length)))
        for start in range(0, length, _BLOCK):
            where = slice(start, min(start + _BLOCK, length))
            block = memory[:, : where.stop - where.start]
            block[:count] = rows.numpy()[:, where]
            if beside is not None:
                block[count] = beside.numpy()[where]
            self._gram += block @ block.T

    @property
    def gram(self) -> Matrix:
        """Return G, float64, shape ``(cohort, cohort)``, or one more if a row was beside.

        Raises:
            ValueError: If nothing was added.
        """
        if self._gram is None:
            raise ValueError("inner products need at least one chunk, got none")
        return self._gram


def squared_distances(gram: Matrix) -> Matrix:
    """Return |D_i - D_j|² for every pair, shape ``(cohort, cohort)``."""
    squares = np.diag(gram)
    # Rounding may leave a hair below 0 between equal updates.
    return np.maximum(squares[:, None] + squares[None, :] - 2 * gram, 0.0)


def cosines_of(gram: Matrix) -> Matrix:
    """Return the cosine of every pair, of G's shape; 0 where one of the two is all zeros."""
    lengths = np.sqrt(np.diag(gram))
    lengths[lengths == 0] = 1.0
    return np.asarray(gram / np.outer(lengths, lengths))


def median_cosines(cosines: Matrix) -> Matrix:
    """Return each update's median cosine with the others, shape ``(cohort,)``, for at least two."""
    others = ~np.eye(len(cosines), dtype=bool)
    return np.asarray(np.median(cosines[others].reshape(len(cosines), -1), axis=1))


def distances_from(gram: Matrix, weights: Matrix) -> Matrix:
    """Return |D_k - Σ w_j D_j|, shape ``(cohort,)``; the weights need not sum to 1."""
    along = gram @ weights
    return np.sqrt(np.maximum(np.diag(gram) - 2 * along + weights @ along, 0.0))
