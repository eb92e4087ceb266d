"""Sum masked vectors group by group, modulo 2^32: exact, in any order, on any number of threads."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.masked.layout import MaskedLayout
from privacy.masking.packing import add_packed


@dataclass(frozen=True)
class UnmaskedSum:
    """The unmasked sum of one group's vectors, noise and all.

    Attributes:
        total: Modulo 2^bits of the grid, uint32, shape ``(layout.element_count,)``.
        contributor_count: Vectors in it.
    """

    total: NDArray[np.uint32]
    contributor_count: int


class MaskedTotals:
    """The running sums of a round's groups; a device's group is its slot modulo their number."""

    def __init__(self, layout: MaskedLayout, group_count: int) -> None:
        self._bits = layout.grid.bits
        self._totals = np.zeros((group_count, layout.element_count), np.uint32)
        self._counts = [0] * group_count

    @property
    def contributor_counts(self) -> tuple[int, ...]:
        """Return how many vectors each group has."""
        return tuple(self._counts)

    def add(self, slot: int, vector: NDArray[np.uint32]) -> None:
        """Add one device's vector, modulo 2^32, shape ``(layout.element_count,)``."""
        group = slot % len(self._counts)
        # Wraps around; whatever lies above the grid's bits is cut off at the end.
        self._totals[group] += vector
        self._counts[group] += 1

    def add_packed(self, slot: int, packed: memoryview) -> None:
        """Add one device's vector as it travels, ``layout.packed_bytes``.

        Raises:
            ValueError: If it has another size, or the bits behind its last element are not zero.
        """
        group = slot % len(self._counts)
        add_packed(self._totals[group], packed, bits=self._bits)
        self._counts[group] += 1

    def unmasked(self, keystreams: Sequence[NDArray[np.uint32]] | None = None) -> list[UnmaskedSum]:
        """Return each group's sum less the sum of its masks, in the totals' own memory.

        Args:
            keystreams: Sums of masks, one a group, from the helper. None in a simulation: in one
                process there are no masks.
        """
        if keystreams is not None:
            for group, keystream in enumerate(keystreams):
                self._totals[group] -= keystream
        self._totals &= np.uint32((1 << self._bits) - 1)
        return [
            UnmaskedSum(total, count)
            for total, count in zip(self._totals, self._counts, strict=True)
        ]
