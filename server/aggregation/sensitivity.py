"""Bound how far one person can move what a rule returns, rounding included.

``privacy.clipping.sensitivity`` holds the theorems. Under a guarantee a rule sums in float64, so
that rounding adds a small known amount:

* a norm is measured to 1e-6 of itself, so an update may be that much too long and weigh that much
  too heavy: 2^-16 of the sensitivity covers both with room;
* adding M updates of norm C and dividing rounds by at most u C (M + 7) e^|κ| in each of two
  neighbouring worlds together, u = 2^-53: the errors of M sums of at most k C each come to
  u C M (M + 3), over a total weight of at least M e^-|κ|, and the rest is the division;
* where the sums themselves are noised, the same sums of updates and weights round by at most
  u S M (M + 7).
"""

import math

from models.vector.layers import layer_clips, layers_of
from models.vector.schema import Schema
from privacy.accounting.events import Adjacency
from privacy.clipping.noised_sums import sums_sensitivity
from privacy.clipping.sensitivity import (
    UnprovedSensitivityError,
    attentive_sensitivity,
    mean_sensitivity,
)
from privacy.clipping.settings import ClippingSettings
from privacy.noise.settings import PrivacySettings, noises_sums
from server.aggregation.noised_sums import summed_layers, whole_clip
from server.aggregation.settings import (
    AggregationSettings,
    AttentiveSettings,
    LiteralSettings,
    MeanSettings,
)

_MEASURING_MARGIN = 2.0**-16
_UNIT_ROUNDOFF = 2.0**-53


def noised_sensitivity(
    settings: AggregationSettings,
    schema: Schema,
    privacy: PrivacySettings,
    *,
    slot_count: int,
    adjacency: Adjacency,
) -> float:
    """Return the largest L2 distance between neighbours of what the coordinator noises.

    That is the aggregate, or the sums that it is divided from (``noise_on``), in parameter units.

    Raises:
        UnprovedSensitivityError: If no bound is proved for these settings.
    """
    sensitivity = summed_sensitivity if noises_sums(privacy) else aggregate_sensitivity
    return sensitivity(settings, schema, privacy, slot_count=slot_count, adjacency=adjacency)


def summed_sensitivity(
    settings: AggregationSettings,
    schema: Schema,
    clipping: ClippingSettings,
    *,
    slot_count: int,
    adjacency: Adjacency,
) -> float:
    """Return the largest L2 distance of the sums of updates and weights between neighbours.

    Arguments and errors are those of ``aggregate_sensitivity``; ``slot_count`` bounds rounding.
    """
    layers, _ = summed_layers(settings, schema)
    exact = sums_sensitivity([whole_clip(clipping)], layer_count=len(layers), adjacency=adjacency)
    rounding = _UNIT_ROUNDOFF * exact * slot_count * (slot_count + 7)
    return exact * (1 + _MEASURING_MARGIN) + rounding


def aggregate_sensitivity(
    settings: AggregationSettings,
    schema: Schema,
    clipping: ClippingSettings,
    *,
    slot_count: int,
    adjacency: Adjacency,
) -> float:
    """Return the largest L2 distance of the aggregate between neighbours, in parameter units.

    It is that of the rule's result, before the server's step; ``slot_count`` M is fixed and public.

    Raises:
        UnprovedSensitivityError: If no bound is proved for these settings.
    """
    norm = whole_clip(clipping)
    exact, strength = _exact(settings, schema, clipping, slot_count=slot_count, adjacency=adjacency)
    rounding = _UNIT_ROUNDOFF * norm * (slot_count + 7) * math.exp(abs(strength))
    return exact * (1 + _MEASURING_MARGIN) + rounding


def _exact(
    settings: AggregationSettings,
    schema: Schema,
    clipping: ClippingSettings,
    *,
    slot_count: int,
    adjacency: Adjacency,
) -> tuple[float, float]:
    """Return the bound in real numbers, and κ."""
    norm, tensor_clips = whole_clip(clipping), clipping.tensor_clips(len(schema.tensors))
    match settings:
        case MeanSettings(weighting="equal"):
            bound = mean_sensitivity(
                slot_count=slot_count, clipping_norms=[norm], adjacency=adjacency
            )
            return bound, 0.0
        case MeanSettings():
            raise UnprovedSensitivityError(
                'aggregation.weighting = "examples" has no bound: who has all examples decides '
                'alone; set weighting = "equal"'
            )
        case LiteralSettings():
            raise UnprovedSensitivityError(
                'aggregation.rule = "literal" bounds nobody\'s influence; use "attentive" or "mean"'
            )
        case AttentiveSettings():
            layers = layers_of(schema, settings.grouping)
            clips = [norm] if tensor_clips is None else layer_clips(layers, tensor_clips)
            bound = attentive_sensitivity(
                slot_count=slot_count,
                attention_strength=settings.attention_strength,
                clipping_norms=clips,
                layer_count=len(layers),
                adjacency=adjacency,
            )
            return bound, settings.attention_strength
        case _:
            raise UnprovedSensitivityError(
                f'aggregation.rule = "{settings.__struct_config__.tag}" has no proved bound on '
                "what one person moves: whom it drops or centres on depends on everybody; "
                'use "attentive" or "mean" with a clipping norm'
            )
