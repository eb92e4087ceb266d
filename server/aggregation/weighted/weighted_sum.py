"""The running sum Σ w_k D_k and the weights behind it.

A layer's total weight is rounded once, from exact arithmetic, so it does not depend on order or
empty slots. Sum and weights are held without their largest common factor e^exponent, so that a
softmax over raw distances never overflows (online softmax).
"""

import math
from array import array
from collections.abc import Sequence
from itertools import repeat

import numpy as np
import torch
from torch import Tensor

from models.vector.layers import Layer
from server.aggregation.weighted.weighing import Weight

_NUMPY = {torch.float32: np.float32, torch.float64: np.float64}


class WeightedSum:
    """A sum of updates with one weight a layer; the layers together cover the vector once.

    What lies behind the last layer stays zero, for whoever closes the sum.
    """

    def __init__(
        self, layers: Sequence[Layer], element_count: int, dtype: torch.dtype = torch.float32
    ) -> None:
        self.layers = tuple(layers)
        # numpy asks the kernel for huge pages: a third of the time to touch it first, fewer misses.
        self._sum: Tensor | None = torch.from_numpy(np.zeros(element_count, dtype=_NUMPY[dtype]))
        self._weights = [array("d") for _ in self.layers]
        self._exponents = [-math.inf] * len(self.layers)

    def add(self, values: Tensor, weights: Sequence[Weight], *, factor: float) -> None:
        """Add one update, flat float32, times ``factor`` and its layer's weight."""
        total = self.open_sum()
        for index, (layer, weight) in enumerate(zip(self.layers, weights, strict=True)):
            self._raise_exponent(index, weight.exponent)
            scaled = weight.factor * math.exp(weight.exponent - self._exponents[index])
            self._weights[index].append(scaled)
            for where in layer.ranges:
                total[where].add_(values[where], alpha=scaled * factor)

    def totals(self, *, empty_count: int, empty_weight: float) -> list[float]:
        """Return the sum of the weights of each layer, empty slots included."""
        return [math.fsum((*kept, *repeat(empty_weight, empty_count))) for kept in self._weights]

    def shares(self, totals: Sequence[float]) -> tuple[tuple[float, ...], ...]:
        """Return each client's weights divided by the totals, one row a client."""
        columns = (
            [weight / total for weight in kept]
            for kept, total in zip(self._weights, totals, strict=True)
        )
        return tuple(zip(*columns, strict=True))

    def divide(self, totals: Sequence[float]) -> Tensor:
        """Return the sum divided by the totals, in the sum's own memory; ends the sum."""
        total = self.close()
        for layer, divisor in zip(self.layers, totals, strict=True):
            for where in layer.ranges:
                total[where].div_(divisor)
        return total

    def close(self) -> Tensor:
        """Return the sum as it is; ends it."""
        total, self._sum = self.open_sum(), None
        return total

    def open_sum(self) -> Tensor:
        """Return the running sum, flat; ValueError once it has been divided."""
        if self._sum is None:
            raise ValueError("the rule has given its result; make a new one for the next round")
        return self._sum

    def _raise_exponent(self, index: int, exponent: float) -> None:
        before = self._exponents[index]
        if exponent <= before:
            return
        self._exponents[index] = exponent
        kept = self._weights[index]
        if kept:
            shrink = math.exp(before - exponent)
            kept[:] = array("d", (weight * shrink for weight in kept))
            for where in self.layers[index].ranges:
                self.open_sum()[where].mul_(shrink)
