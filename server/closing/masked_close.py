"""Close a round of which only sums were unmasked.

The same as ``server.closing.close`` with every update unopened: what is divided here was weighed,
summed and noised under masks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from models.masked.layout import MaskedLayout
from server.closing.close import Closed, Closing


class MasksDoNotCancelError(ValueError):
    """Raised when an unmasked sum is no sum of the vectors that came; nobody can say whose fault."""


@dataclass(frozen=True)
class UnmaskedSum:
    """The unmasked sum of one group's vectors, noise and all.

    Attributes:
        total: Modulo 2^bits of the grid, uint32, shape ``(layout.element_count,)``.
        contributor_count: Vectors in it.
    """

    total: NDArray[np.uint32]
    contributor_count: int


def close_masked(
    parameters: Tensor, groups: Sequence[UnmaskedSum], layout: MaskedLayout, closing: Closing
) -> Closed:
    """Divide the noised sums, and step.

    Args:
        parameters: As in ``server.closing.close.close_round``.
        groups: One sum for each of ``privacy.groups``, in the order of the groups.
        layout: The plan's ``models.masked.layout.masked_layout``.
        closing: The terms; its ``privacy`` has the round's clipping norm. Noise keys, screen and
            personalisation are not asked.

    Raises:
        MasksDoNotCancelError: If check elements are wrong; the attempt is to be tried again.
        ValueError: If sums are too few or too short, or the result is not finite.
    """
