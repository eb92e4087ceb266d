"""Settings that every aggregation rule has, and those that rules with attention share."""

import math
from typing import Literal

import msgspec

LARGEST_ATTENTION_STRENGTH = 50.0
"""Beyond it the weight of a zero update, e^-κ, times an update's elements leaves float32."""

Grouping = Literal["tensor", "layer"]


class RuleSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="rule"
):
    """The settings of every rule.

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

    @property
    def look_back(self) -> int:
        """Return how many rounds back the rule asks what the model was; 0 for never."""
        return 0


def check_attention_strength(strength: float) -> None:
    """Check κ: the weight of a zero update must stay in float32, else ValueError."""
    # Written as ``not a <= x <= b`` so that NaN is refused too.
    if not abs(strength) <= LARGEST_ATTENTION_STRENGTH:
        raise ValueError(
            f"attention_strength must lie in [-{LARGEST_ATTENTION_STRENGTH:g}, "
            f"{LARGEST_ATTENTION_STRENGTH:g}], got {strength}"
        )
