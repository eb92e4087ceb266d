"""Divide a matrix by its largest singular value, and pull a gradient back through that.

The singular pair is found exactly, from the smaller of the two products of the matrix with itself.
A power iteration would carry vectors from step to step; here nothing needs to be stored, and a
restarted run continues to the bit.

References:
    Miyato et al., "Spectral Normalization for GANs", ICLR 2018, arXiv:1802.05957, Eq. 8 and 12.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class NormedMatrix:
    """The matrix W / σ(W), and what its gradient needs.

    Attributes:
        matrix: W / σ, float32, shape ``(rows, columns)``; W itself where it is zero.
        largest: σ, the largest singular value; 1 where W is zero.
        left: u, of length 1, shape ``(rows,)``.
        right: v, of length 1, shape ``(columns,)``.
    """

    matrix: Tensor
    largest: float
    left: Tensor
    right: Tensor

    def pull_back(self, gradient: Tensor) -> None:
        """Turn the gradient of W / σ into that of W, in place: (G - <G, W/σ> u vᵀ) / σ."""
        along = float(gradient.flatten() @ self.matrix.flatten())
        gradient.addr_(self.left, self.right, alpha=-along).div_(self.largest)


def normed(matrix: Tensor) -> NormedMatrix:
    """Return a float32 matrix, ``(rows, columns)``, divided by its largest singular value."""
    rows, columns = matrix.shape
    is_wide = columns > rows
    product = matrix @ matrix.t() if is_wide else matrix.t() @ matrix
    shorter = torch.linalg.eigh(product.double()).eigenvectors[:, -1].float()
    longer = (matrix.t() if is_wide else matrix) @ shorter
    largest = float(longer.norm())
    if largest == 0:
        return NormedMatrix(matrix, 1.0, matrix.new_zeros(rows), matrix.new_zeros(columns))
    longer = longer / largest
    left, right = (shorter, longer) if is_wide else (longer, shorter)
    return NormedMatrix(matrix / largest, largest, left, right)
