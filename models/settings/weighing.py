"""How devices weigh their own updates where only sums are unmasked. No torch."""

import msgspec

from privacy.clipping.rule_settings import Grouping, check_attention_strength


class _Weights(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="by"
):
    """What every weighing has."""


class EqualWeights(_Weights, frozen=True, kw_only=True, tag="equal"):
    """The weight 1, whatever the update and the examples."""


class ExampleWeights(_Weights, frozen=True, kw_only=True, tag="examples"):
    """The example count over ``training.example_cap``, at most 1; it travels under the mask."""


class AttentiveWeights(_Weights, frozen=True, kw_only=True, tag="attention"):
    """Attention's weight of each layer, as ``privacy.clipping.noised_sums.attentive_weight``.

    Attributes:
        attention_strength: κ.
        grouping: Unit of weighting: every ``tensor``, or the tensors of a ``layer`` together.
    """

    attention_strength: float
    grouping: Grouping

    def __post_init__(self) -> None:
        check_attention_strength(self.attention_strength)


Weighing = EqualWeights | ExampleWeights | AttentiveWeights
