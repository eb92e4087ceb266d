"""Settings of every aggregation rule; ``rule`` in TOML picks one.

A new rule is one settings struct here, one member of ``AggregationSettings``, one file with the
rule, and one line in ``server/aggregation/registry.py``. No torch here: the configuration is read
before torch is needed.

References:
    [FedAtt] Ji et al., IJCNN 2019, arXiv:1812.07108.
"""

import math
from typing import Literal

import msgspec

LARGEST_ATTENTION_STRENGTH = 50.0
"""Beyond it the weight of a zero update, e^-κ, times an update's elements leaves float32."""

Grouping = Literal["tensor", "layer"]


class _Rule(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="rule"
):
    """Hold what every rule has.

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


class MeanSettings(_Rule, frozen=True, kw_only=True, tag="mean"):
    """Average the updates: FedAvg, and FedSGD with every client and one local step.

    Attributes:
        weighting: By ``examples`` (target tokens; an empty slot weighs nothing), or ``equal``
            (an empty slot counts as a client that sent zeros).
    """

    weighting: Literal["examples", "equal"] = "examples"


class AttentiveSettings(_Rule, frozen=True, kw_only=True, tag="attentive"):
    """Weigh each layer by e^{κ(s/C - 1)}, s its norm in the clipped update.

    Attributes:
        attention_strength: κ; the largest ratio of two weights is e^κ, 0 is the equal mean. A
            value above 0.5 buys little and multiplies the noise a guarantee needs by about e^κ.
        grouping: What counts as a layer: every ``tensor`` by itself (as the authors' code), or
            the tensors of one ``layer`` of the schema together.
    """

    attention_strength: float = 0.5
    grouping: Grouping = "tensor"

    def __post_init__(self) -> None:
        super().__post_init__()
        # Written as ``not a <= x <= b`` so that NaN is refused too.
        if not abs(self.attention_strength) <= LARGEST_ATTENTION_STRENGTH:
            raise ValueError(
                f"attention_strength must lie in [-{LARGEST_ATTENTION_STRENGTH:g}, "
                f"{LARGEST_ATTENTION_STRENGTH:g}], got {self.attention_strength}"
            )


class LiteralSettings(_Rule, frozen=True, kw_only=True, tag="literal"):
    """Weigh by the raw softmax over distances ([FedAtt] Eq. 2). Bounds no client's influence.

    Attributes:
        norm: ``frobenius`` (the distance of the paper's derivation), or ``spectral`` (largest
            singular value of a matrix, L2 norm of a vector, as the authors' code).
        grouping: As in ``AttentiveSettings``; ``spectral`` is defined by ``tensor`` only.
    """

    norm: Literal["frobenius", "spectral"] = "frobenius"
    grouping: Grouping = "tensor"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.norm == "spectral" and self.grouping == "layer":
            raise ValueError('norm = "spectral" is defined for one tensor; set grouping = "tensor"')


AggregationSettings = MeanSettings | AttentiveSettings | LiteralSettings
