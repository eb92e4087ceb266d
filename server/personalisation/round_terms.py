"""The terms under which the server half of a method learns from a round."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

AddNoise = Callable[[Tensor], Tensor]
"""Return a flat gradient with calibrated noise; the given one may be changed."""


@dataclass(frozen=True)
class RoundTerms:
    """The facts of a round that a server half must know.

    Attributes:
        slot_count: Places of the round, M, filled or not.
        weighting: By ``examples``, or ``equal``: an empty place is a client that learnt nothing.
        is_noised: Whether the gradient gets calibrated noise; sums are then float64 and a round in
            which every place stays empty is no error.
    """

    slot_count: int
    weighting: Literal["examples", "equal"]
    is_noised: bool = False
