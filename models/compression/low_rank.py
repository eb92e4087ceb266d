"""Send two thin factors instead of a large matrix.

One step of a subspace iteration: P spans M times a drawn thin matrix, and Q = Mᵀ P, so that P Qᵀ is
M projected on those r directions, and what is lost is never more than there was. Drawing a new
matrix each round from the round's seed needs no state; what one projection misses, error feedback
brings to another. Tensors that would not get smaller travel as they are.

A tensor counts as a matrix of its first axis by all others. No library of linear algebra is asked,
so all machines of a kind come to the same bits with any number of threads.

References:
    [PowerSGD] Vogels et al., "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
        Optimization", NeurIPS 2019, arXiv:1905.13727, algorithm 1. Theirs starts from the last
        round's Q; a device that is drawn rarely would start from a stale one.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from models.compression.value_coder import Draws, ValueCoder
from models.vector.codec import FlatVector
from models.vector.schema import Schema

_ROUNDING = 1e-6


@dataclass(frozen=True)
class _Matrix:
    """Say where a tensor lies, and where what is sent of it.

    Attributes:
        place: In the update.
        sent: In what is sent.
        rows: Of the tensor as a matrix.
        columns: Of the tensor as a matrix.
        is_split: Whether two factors are sent instead of it.
    """

    place: slice
    sent: slice
    rows: int
    columns: int
    is_split: bool


class LowRankCoder:
    """Write an update as factors of its large tensors, with another coder."""

    def __init__(self, schema: Schema, rank: int, values: ValueCoder) -> None:
        """Choose the tensors that get smaller.

        Args:
            schema: The tensors of an update.
            rank: Columns of a factor.
            values: Writes factors, and the tensors that are not split.
        """
        self._matrices = list(_matrices(schema, rank))
        self._element_count = schema.element_count
        self._sent_count = self._matrices[-1].sent.stop if self._matrices else 0
        self._rank = rank
        self._values = values

    def byte_count(self, element_count: int) -> int:
        """Return the bytes of factors and other tensors.

        Raises:
            ValueError: If that is not the length of the schema's updates.
        """
        if element_count != self._element_count:
            raise ValueError(f"updates have {self._element_count} values, got {element_count}")
        return self._values.byte_count(self._sent_count)

    def encode(self, values: FlatVector, into: memoryview, draws: Draws | None) -> None:
        """Write values, each to the nearest: draws start the iteration. See ``ValueCoder``.

        Raises:
            ValueError: If there is nothing to draw from.
        """
        if draws is None:
            raise ValueError("a projection needs draws, got none")
        sent = np.empty(self._sent_count, np.float32)
        for matrix in self._matrices:
            part = values[matrix.place]
            sent[matrix.sent] = self._factors(part, matrix, draws) if matrix.is_split else part
        self._values.encode(sent, into, None)

    def decode(self, coded: memoryview, into: FlatVector) -> None:
        """Read values; see ``ValueCoder``. Products may be infinite, as the reader must check."""
        sent = np.empty(self._sent_count, np.float32)
        self._values.decode(coded, sent)
        for matrix in self._matrices:
            part = sent[matrix.sent]
            into[matrix.place] = self._product(part, matrix) if matrix.is_split else part

    def _factors(self, part: FlatVector, matrix: _Matrix, draws: Draws) -> FlatVector:
        whole = part.reshape(matrix.rows, matrix.columns)
        start = draws.take(matrix.columns * self._rank).astype(np.float32) - np.float32(32767.5)
        spanned = np.einsum("rc,cd->rd", whole, start.reshape(matrix.columns, self._rank))
        left = _orthonormal(spanned)
        right = np.einsum("rc,rd->cd", whole, left)
        return np.concatenate([left.reshape(-1), right.reshape(-1)])

    def _product(self, factors: FlatVector, matrix: _Matrix) -> FlatVector:
        left, right = np.split(factors, [matrix.rows * self._rank])
        left, right = left.reshape(-1, self._rank), right.reshape(-1, self._rank)
        whole = np.zeros((matrix.rows, matrix.columns), np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            for direction in range(self._rank):
                whole += left[:, direction, None] * right[None, :, direction]
        return whole.reshape(-1)


def _orthonormal(spanned: FlatVector) -> FlatVector:
    """Return directions at right angles that span the same (modified Gram-Schmidt).

    Args:
        spanned: Columns, shape ``(rows, rank)``; one that adds nothing comes out as zeros.
    """
    columns = spanned.T.astype(np.float64)
    for index in range(len(columns)):
        length = np.sqrt((columns[index] ** 2).sum())
        for before in columns[:index]:
            columns[index] -= (before * columns[index]).sum() * before
        left = np.sqrt((columns[index] ** 2).sum())
        # What is left of a column that the others span is rounding.
        columns[index] *= 0.0 if left <= _ROUNDING * length else 1 / left
    return np.ascontiguousarray(columns.T, np.float32)


def _matrices(schema: Schema, rank: int) -> Iterator[_Matrix]:
    start = 0
    for spec in schema.tensors:
        rows = spec.shape[0]
        columns = spec.element_count // rows
        factors = (rows + columns) * rank
        is_split = factors < spec.element_count
        size = factors if is_split else spec.element_count
        place = schema.slices[spec.name]
        yield _Matrix(place, slice(start, start + size), rows, columns, is_split)
        start += size
