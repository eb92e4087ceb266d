"""Keep Σ w_k D_k and the weights behind it: what every weighted rule streams.

The sum is float32, one model in size. The weights are eight bytes a client and layer; their total
is rounded once, from exact arithmetic, so it does not depend on order, shards or empty slots.
A layer's sum and weights are held without their largest common factor e^exponent, so that a
softmax over raw distances never overflows (online softmax).
"""

import math
from array import array
from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from server.aggregation.layers import Layer
from server.aggregation.weighing import Weight

# Elements of the sum that stay in cache while each update in hand is added to them: 1 MiB.
_BLOCK = 1 << 18


class Addend(NamedTuple):
    """Hold one update to be added.

    Attributes:
        values: Flat float32, shape ``(elements,)``.
        factor: What every element is multiplied by besides its weight.
        weights: One a layer.
    """

    values: Tensor
    factor: float
    weights: Sequence[Weight]


class WeightedSum:
    """Add updates under one weight a layer.

    Attributes:
        layers: Units of weighting; together they cover the vector once.
    """

    def __init__(self, layers: Sequence[Layer], element_count: int) -> None:
        self.layers = tuple(layers)
        # numpy asks the kernel for huge pages: a third of the time to touch it first, fewer misses.
        self._sum: Tensor | None = torch.from_numpy(np.zeros(element_count, dtype=np.float32))
        self._weights = [array("d") for _ in self.layers]
        self._exponents = [-math.inf] * len(self.layers)

    def add(self, addends: Sequence[Addend]) -> None:
        """Add updates, reading and writing the sum once for all of them where that is exact.

        The answer is that of adding one by one, to the last bit.
        """
        for index in range(len(self.layers)):
            largest = max(addend.weights[index].exponent for addend in addends)
            if largest <= self._exponents[index]:
                self._add_to_layer(index, addends)
                continue
            for addend in addends:  # The sum is rescaled on the way: no one pass can do it.
                self._add_to_layer(index, [addend])

    def merge(self, other: "WeightedSum") -> None:
        """Add another sum over the same layers, its clients behind this one's."""
        total, theirs = self.open_sum(), other.open_sum()
        for index, layer in enumerate(self.layers):
            if not other._weights[index]:
                continue
            self._raise_exponent(index, other._exponents[index])
            scale = math.exp(other._exponents[index] - self._exponents[index])
            self._weights[index].extend(weight * scale for weight in other._weights[index])
            for where in layer.ranges:
                total[where].add_(theirs[where], alpha=scale)

    def totals(self, *, empty_count: int, empty_weight: float) -> list[float]:
        """Return the sum of the weights of each layer, ``empty_count`` empty slots included."""
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
        total = self.open_sum()
        for layer, divisor in zip(self.layers, totals, strict=True):
            for where in layer.ranges:
                total[where].div_(divisor)
        self._sum = None
        return total

    def open_sum(self) -> Tensor:
        """Return the running sum, flat float32, shape ``(elements,)``.

        Raises:
            ValueError: If it has been divided already.
        """
        if self._sum is None:
            raise ValueError("the rule has given its result; make a new one for the next round")
        return self._sum

    def _add_to_layer(self, index: int, addends: Sequence[Addend]) -> None:
        weights = [addend.weights[index] for addend in addends]
        self._raise_exponent(index, max(weight.exponent for weight in weights))
        scaled = [
            weight.factor * math.exp(weight.exponent - self._exponents[index]) for weight in weights
        ]
        self._weights[index].extend(scaled)
        for where in self.layers[index].ranges:
            self._add_range(where, addends, scaled)

    def _add_range(self, where: slice, addends: Sequence[Addend], weights: Sequence[float]) -> None:
        total = self.open_sum()
        for start in range(where.start, where.stop, _BLOCK):
            block = slice(start, min(start + _BLOCK, where.stop))
            for addend, weight in zip(addends, weights, strict=True):
                total[block].add_(addend.values[block], alpha=addend.factor * weight)

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
