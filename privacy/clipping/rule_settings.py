"""Settings of an aggregation rule on which its sensitivity rests; no torch.

The server's rules are made of them, and ``sotto-privacy`` reads a federation's file by them.

References:
    [FedAtt] Ji et al., IJCNN 2019, arXiv:1812.07108.
"""

import math
from typing import Literal

import msgspec

Grouping = Literal["tensor", "layer"]
"""The unit of weighting: every tensor by itself, or the tensors of a layer together."""

ATTENTION_STRENGTH = 0.5
"""κ where a federation names none; above it a guarantee needs much more noise."""

LARGEST_ATTENTION_STRENGTH = 50.0
"""Beyond it the weight of a zero update, e^-κ, times an update's elements leaves float32."""


class ServerStep(msgspec.Struct, frozen=True, kw_only=True):
    """The server's step along the aggregate.

    Attributes:
        server_step_size: ε in [FedAtt] Eq. 4: the aggregate is multiplied by it before it is
            added to the parameters. Compare rules at one step size only.
    """

    server_step_size: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.server_step_size < math.inf:
            raise ValueError(
                f"server_step_size must be > 0 and finite, got {self.server_step_size}"
            )


def check_attention_strength(strength: float) -> None:
    """Raise ValueError for a κ by which the weight of a zero update would leave float32."""
    # Written as ``not a <= x <= b`` so that NaN is refused too.
    if not abs(strength) <= LARGEST_ATTENTION_STRENGTH:
        raise ValueError(
            f"attention_strength must lie in [-{LARGEST_ATTENTION_STRENGTH:g}, "
            f"{LARGEST_ATTENTION_STRENGTH:g}], got {strength}"
        )
