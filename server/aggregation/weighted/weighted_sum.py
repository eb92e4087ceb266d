"""The running sum Σ w_k D_k and the weights behind it.

A layer's total weight is rounded once, from exact arithmetic, so it does not depend on order or
empty slots. Sum and weights are held without their largest common factor e^exponent, so that a
softmax over raw distances never overflows (online softmax).
"""

import math
from array import array
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from itertools import repeat
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from models.vector.layers import Layer
from server.aggregation.closing_workers import ClosingWorkers, settle
from server.aggregation.weighted.weighing import Weight

# Elements that a worker adds at a time: a batch's are added up while their sum is in its cache.
_BLOCK = 1 << 16
_NUMPY = {torch.float32: np.float32, torch.float64: np.float64}


class _Scaled(NamedTuple):
    """One update, and what each layer of it is multiplied by."""

    values: Tensor
    scales: Sequence[float]


class WeightedSum:
    """A sum of updates with one weight a layer; the layers together cover the vector once.

    What lies behind the last layer stays zero, for whoever closes the sum.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        element_count: int,
        dtype: torch.dtype = torch.float32,
        *,
        workers: ClosingWorkers | None = None,
    ) -> None:
        self.layers = tuple(layers)
        self._workers = workers or ClosingWorkers()
        self._parts = _parts_of(self.layers, self._workers.count)
        # Updates that wait for their batch to be full, and the additions that are under way.
        self._waiting: list[_Scaled] = []
        self._running: list[Future[None]] = []
        # numpy asks the kernel for huge pages: a third of the time to touch it first, fewer misses.
        self._sum: Tensor | None = torch.from_numpy(np.zeros(element_count, dtype=_NUMPY[dtype]))
        self._weights = [array("d") for _ in self.layers]
        self._exponents = [-math.inf] * len(self.layers)

    def add(self, values: Tensor, weights: Sequence[Weight], *, factor: float) -> None:
        """Add one update, flat float32, times ``factor`` and its layer's weight.

        With several workers it may be read until ``lag`` more were added.
        """
        total = self.open_sum()
        scales = []
        for index, (_, weight) in enumerate(zip(self.layers, weights, strict=True)):
            self._raise_exponent(index, weight.exponent)
            scaled = weight.factor * math.exp(weight.exponent - self._exponents[index])
            self._weights[index].append(scaled)
            scales.append(scaled * factor)
        if len(self._parts) == 1:
            # One worker, or so few elements that nobody else is worth asking.
            _add_part(total, self._parts[0], [_Scaled(values, scales)])
            return
        self._waiting.append(_Scaled(values, scales))
        if len(self._waiting) == self._workers.batch:
            self._begin()
            if not self._workers.lag:
                self.settle()

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

    def settle(self) -> None:
        """Finish all additions: no update is read after this."""
        self._begin()
        self._wait()

    def close(self) -> Tensor:
        """Return the sum as it is; ends it."""
        self.settle()
        total, self._sum = self.open_sum(), None
        return total

    def open_sum(self) -> Tensor:
        """Return the running sum, flat; ValueError once it has been divided."""
        if self._sum is None:
            raise ValueError("the rule has given its result; make a new one for the next round")
        return self._sum

    def _begin(self) -> None:
        """Have the updates that wait added, once those before them are."""
        self._wait()
        total, batch = self.open_sum(), self._waiting
        self._waiting = []
        if batch:
            self._running = [
                self._workers.submit(partial(_add_part, total, part, batch)) for part in self._parts
            ]

    def _wait(self) -> None:
        running, self._running = self._running, []
        if running:
            settle(running)

    def _raise_exponent(self, index: int, exponent: float) -> None:
        before = self._exponents[index]
        if exponent <= before:
            return
        self._exponents[index] = exponent
        kept = self._weights[index]
        if kept:
            self.settle()
            shrink = math.exp(before - exponent)
            kept[:] = array("d", (weight * shrink for weight in kept))
            for where in self.layers[index].ranges:
                self.open_sum()[where].mul_(shrink)


_Part = list[tuple[int, slice]]
"""Blocks of elements, each with the index of its layer, that one worker adds."""


def _parts_of(layers: Sequence[Layer], worker_count: int) -> list[_Part]:
    """Return what each worker adds: about as many elements each; one worker takes layers whole."""
    if worker_count == 1:
        return [[(index, where) for index, layer in enumerate(layers) for where in layer.ranges]]
    blocks = [
        (index, slice(start, min(start + _BLOCK, where.stop)))
        for index, layer in enumerate(layers)
        for where in layer.ranges
        for start in range(where.start, where.stop, _BLOCK)
    ]
    element_count = sum(where.stop - where.start for _, where in blocks)
    parts: list[_Part] = [[] for _ in range(worker_count)]
    before = 0
    for index, where in blocks:
        parts[before * worker_count // element_count].append((index, where))
        before += where.stop - where.start
    return [part for part in parts if part]


def _add_part(total: Tensor, part: _Part, batch: Sequence[_Scaled]) -> None:
    """Add a batch of updates to some elements of the sum, in the order of the batch."""
    for index, where in part:
        block = total[where]
        for update in batch:
            block.add_(update.values[where], alpha=update.scales[index])
