"""Settings of every aggregation rule; ``rule`` in TOML picks one.

A new rule is one settings struct here or in ``robust_settings``, one member of
``AggregationSettings``, one file with the rule, and one line in
``server/aggregation/registry.py``. No torch here: the configuration is read before torch is needed.

References:
    [FedAtt] Ji et al., IJCNN 2019, arXiv:1812.07108.
"""

from typing import Literal

from privacy.clipping.rule_settings import ATTENTION_STRENGTH, check_attention_strength
from server.aggregation.robust_settings import RobustSettings
from server.aggregation.rule_settings import Grouping, RuleSettings


class MeanSettings(RuleSettings, frozen=True, kw_only=True, tag="mean"):
    """Average the updates: FedAvg, and FedSGD with every client and one local step.

    Attributes:
        weighting: By ``examples`` (target tokens; an empty slot weighs nothing), or ``equal``
            (an empty slot counts as a client that sent zeros).
    """

    weighting: Literal["examples", "equal"] = "examples"


class AttentiveSettings(RuleSettings, frozen=True, kw_only=True, tag="attentive"):
    """Weigh each layer by e^{κ(s/C - 1)}, s its norm in the clipped update.

    Breakdown point: none; in each layer one client weighs at most e^|κ| times another, and enough
    of one mind move the result anywhere within the clip. Cost: that of a mean; updates stream, and
    none is kept.

    Attributes:
        attention_strength: κ; the largest ratio of two weights is e^|κ|, 0 is the equal mean. A
            value above 0.5 buys little and multiplies the noise a guarantee needs by about e^κ.
            Below 0 it is turned round: who moved furthest weighs least, down to e^κ times one who
            did not move. That damps who sends much, not who sends little and wrong; and empty
            places, which are zeros, weigh most.
        grouping: What counts as a layer: every ``tensor`` by itself (as the authors' code), or
            the tensors of one ``layer`` of the schema together.
    """

    attention_strength: float = ATTENTION_STRENGTH
    grouping: Grouping = "tensor"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_attention_strength(self.attention_strength)


class LiteralSettings(RuleSettings, frozen=True, kw_only=True, tag="literal"):
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


AggregationSettings = MeanSettings | AttentiveSettings | LiteralSettings | RobustSettings
