"""Settings of every aggregation rule, without torch; ``rule`` in TOML picks one.

A new rule is one settings struct here or in ``robust_settings``, one member of
``AggregationSettings``, one file with the rule, and one line in ``server/aggregation/registry.py``.
"""

from typing import Literal

from privacy.clipping.rule_settings import ATTENTION_STRENGTH, Grouping, check_attention_strength
from server.aggregation.robust_settings import RobustSettings
from server.aggregation.rule_settings import RuleSettings


class MeanSettings(RuleSettings, frozen=True, kw_only=True, tag="mean"):
    """The mean of the updates: FedAvg, and FedSGD with every client and one local step.

    Attributes:
        weighting: By ``examples`` (target tokens; an empty slot weighs nothing), or ``equal`` (an
            empty slot counts as a client that sent zeros).
    """

    weighting: Literal["examples", "equal"] = "examples"


class AttentiveSettings(RuleSettings, frozen=True, kw_only=True, tag="attentive"):
    """A weight of e^{κ(s/C - 1)} for each layer, s its norm in the clipped update.

    Breakdown point: none; in each layer one client weighs at most e^|κ| times another, and enough
    of one mind move the result anywhere within the clip. Cost: that of a mean; no update is kept.

    Attributes:
        attention_strength: κ; 0 is the equal mean. A value above 0.5 buys little and multiplies the
            noise a guarantee needs by about e^κ. Below 0 the client that moved furthest weighs
            least, which damps long updates, not short wrong ones; and empty places, which are
            zeros, weigh most.
        grouping: Unit of weighting: every ``tensor`` by itself (as the authors' code), or the
            tensors of one ``layer`` of the schema together.
    """

    attention_strength: float = ATTENTION_STRENGTH
    grouping: Grouping = "tensor"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_attention_strength(self.attention_strength)


class LiteralSettings(RuleSettings, frozen=True, kw_only=True, tag="literal"):
    """The raw softmax over distances, which bounds no client's influence.

    It is [FedAtt] Eq. 2 (Ji et al., IJCNN 2019, arXiv:1812.07108).

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
