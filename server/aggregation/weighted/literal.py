"""Weigh each layer by the softmax of raw distances ([FedAtt] Eq. 2, IJCNN 2019, arXiv:1812.07108).

Nothing bounds a weight: the ratio of two is e^{s_i - s_j}, so one outlier takes the layer, and no
noise on the result gives a guarantee. The authors' code (github.com/shaoxiongji/fed-att) takes the
spectral norm although the paper's derivation needs the Euclidean one.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from models.vector.layers import Layer
from models.vector.schema import Schema
from server.aggregation.measured_update import Measured
from server.aggregation.settings import LiteralSettings
from server.aggregation.weighted.weighing import Weight


@dataclass(frozen=True)
class LiteralWeighing:
    """The weight e^s, layer by layer; an empty slot takes no part."""

    settings: LiteralSettings
    layers: tuple[Layer, ...]
    schema: Schema

    @property
    def empty_weight(self) -> float:
        """Return 0: the paper's softmax runs over the clients that answered."""
        return 0.0

    def weigh(self, update: Measured, example_count: int) -> tuple[Weight, ...]:
        """Return a weight for each layer; the example count plays no part."""
        norms = update.tensor_norms
        if self.settings.norm == "spectral":
            norms = self._spectral_norms(update)
        return tuple(
            Weight(1.0, exponent=math.hypot(*(norms[index] for index in layer.tensors)))
            for layer in self.layers
        )

    def _spectral_norms(self, update: Measured) -> tuple[float, ...]:
        return tuple(
            norm
            if len(tensor.shape) == 1
            else update.factor * spectral_norm(update.values[where].view(tensor.shape))
            for tensor, where, norm in zip(
                self.schema.tensors, self.schema.slices.values(), update.tensor_norms, strict=True
            )
        )


def spectral_norm(tensor: Tensor) -> float:
    """Return the largest singular value of finite float32 ``(rows, ...)``; later axes are columns.

    It is the square root of the largest eigenvalue of the smaller Gram matrix, in float64: one
    matrix product instead of an SVD. Its last bits may differ between numbers of threads.
    """
    matrix = tensor.flatten(1).double()
    if matrix.shape[0] < matrix.shape[1]:
        matrix = matrix.T
    largest = float(torch.linalg.eigvalsh(matrix.T @ matrix)[-1])
    return math.sqrt(max(largest, 0.0))  # A zero matrix may give a hair below 0.
