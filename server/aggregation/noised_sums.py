"""Where the sums of updates and of weights lie in one vector, and how the noised one is divided.

``privacy.clipping.noised_sums`` has the theorem. The vector is

    [sum of w_t D_t, flat, in schema order | ρC V_t, one for each unit of weighting],

and gets one draw of noise of z times its sensitivity. Division by the noised V_t comes afterwards
and costs no privacy. A floor, which follows from public settings alone, bounds what a round of few
or none is divided by.

Under a tree of noise the divisor is the mean of all V_t of the run so far. Noise that a later round
takes out again must have been divided by nearly the same number, or some of it stays in the model:
with each round's own V_t it would gather like a random walk. The mean moves by one part in the
number of rounds, and its noise is that of a prefix sum over as many.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.plan.release_record import Metric
from models.vector.layers import Layer, layers_of, whole_model
from models.vector.schema import Schema
from privacy.clipping.noised_sums import least_weight, weight_entry
from privacy.clipping.sensitivity import UnprovedSensitivityError
from privacy.clipping.settings import ClippingSettings
from server.aggregation.settings import (
    AggregationSettings,
    AttentiveSettings,
    LiteralSettings,
    MeanSettings,
)

if TYPE_CHECKING:
    # Settings are checked by what lies here, and what reads them loads no torch.
    from torch import Tensor

WEIGHTS_FIGURE = "weights_so_far"
"""Figure of a round's release under a tree of noise: sums over rounds of V_t, noise included."""

LEAST_FILLED = 0.25
"""Share of the places, each at the least weight, to which the divisor never falls below."""


@dataclass(frozen=True)
class SumsForm:
    """The layout of a round's sums, of updates and of weights.

    Attributes:
        layers: Units of weighting; together they cover the elements once.
        element_count: Elements of one update.
        weight_entry: ρC, the entry of a full weight, in parameter units.
        least_total: Floor of each divisor, in clients of full weight.
    """

    layers: tuple[Layer, ...]
    element_count: int
    weight_entry: float
    least_total: float

    @property
    def length(self) -> int:
        """Return the elements of the vector."""
        return self.element_count + len(self.layers)

    def fill(self, vector: "Tensor", totals: Sequence[float]) -> "Tensor":
        """Write the totals of the weights behind the sums, in place; shape ``(length,)``."""
        vector[self.element_count :] = self.weight_entry * vector.new_tensor(totals)
        return vector

    def totals(self, noised: "Tensor") -> tuple[float, ...]:
        """Return the noised totals of the weights, V_t, in clients of full weight."""
        return tuple((noised[self.element_count :].double() / self.weight_entry).tolist())

    def divided(self, noised: "Tensor", divisors: Sequence[float]) -> "Tensor":
        """Return the weighted mean, shape ``(element_count,)``, in the vector's memory.

        Args:
            noised: The vector with its noise, flat float32 or float64, shape ``(length,)``.
            divisors: Weight by which each layer is divided, one a layer; ``least_total`` where it
                is less.
        """
        for layer, divisor in zip(self.layers, divisors, strict=True):
            for where in layer.ranges:
                noised[where].div_(max(divisor, self.least_total))
        return noised[: self.element_count]


def sums_form(
    settings: AggregationSettings,
    schema: Schema,
    clipping: ClippingSettings,
    *,
    slot_count: int,
) -> SumsForm:
    """Return the layout of the sums that a rule needs.

    Raises:
        UnprovedSensitivityError: If the rule is no ratio of two bounded sums, or nothing is
            clipped; says why, and the remedy.
    """
    layers, strength = summed_layers(settings, schema)
    return SumsForm(
        layers=layers,
        element_count=schema.element_count,
        weight_entry=weight_entry([whole_clip(clipping)], len(layers)),
        least_total=LEAST_FILLED * slot_count * least_weight(strength),
    )


def weights_after(
    before: tuple[float, ...] | None, totals: tuple[float, ...], *, round_number: int | None
) -> tuple[float, ...]:
    """Return the sum of every round's noised totals, this one's included.

    Raises:
        ValueError: If there is no round number, or the sum of the rounds before is missing.
    """
    if round_number is None or (before is None) != (round_number == 1):
        raise ValueError(
            "weights_so_far must be given from the second round on and not before, "
            f"got {before} in round {round_number}"
        )
    if before is None:
        return totals
    return tuple(sum(pair) for pair in zip(before, totals, strict=True))


def figures_of_weights(weights_so_far: tuple[float, ...] | None) -> dict[str, str]:
    """Return them as a figure of the round, from which a later one goes on; exact."""
    if weights_so_far is None:
        return {}
    return {WEIGHTS_FIGURE: " ".join(map(repr, weights_so_far))}


def weights_of_figures(figures: Mapping[str, Metric]) -> tuple[float, ...] | None:
    """Return what ``figures_of_weights`` wrote, or None."""
    told = figures.get(WEIGHTS_FIGURE)
    return None if told is None else tuple(map(float, str(told).split()))


def summed_layers(settings: AggregationSettings, schema: Schema) -> tuple[tuple[Layer, ...], float]:
    """Return the units of weighting of a rule that noised sums serve, and its κ; 0 for the mean.

    Raises:
        UnprovedSensitivityError: As ``sums_form``.
    """
    match settings:
        case MeanSettings(weighting="equal"):
            return whole_model(schema), 0.0
        case AttentiveSettings():
            return layers_of(schema, settings.grouping), settings.attention_strength
        case MeanSettings():
            raise UnprovedSensitivityError(
                'aggregation.weighting = "examples" needs counts, and under a guarantee no device '
                'tells the coordinator its own; set weighting = "equal"'
            )
        case LiteralSettings():
            raise UnprovedSensitivityError(
                'aggregation.rule = "literal" bounds nobody\'s weight, so no noise hides it in a '
                'sum; use "attentive" or "mean"'
            )
        case _:
            raise UnprovedSensitivityError(
                f'aggregation.rule = "{settings.__struct_config__.tag}" looks at every update, not '
                'at sums of them; use "attentive" or "mean"'
            )


def whole_clip(clipping: ClippingSettings) -> float:
    """Return C, that of all layers together however it is shared out.

    Raises:
        UnprovedSensitivityError: If nothing is clipped.
    """
    if clipping.clipping_norm is None:
        raise UnprovedSensitivityError(
            "privacy.clipping_norm must be given: without it one person can move anything"
        )
    return clipping.clipping_norm
