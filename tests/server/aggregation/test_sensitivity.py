import math

import pytest

from models.vector.schema import Schema, TensorSpec
from privacy.clipping.sensitivity import UnprovedSensitivityError
from privacy.clipping.settings import ClippingSettings
from server.aggregation.sensitivity import aggregate_sensitivity
from server.aggregation.settings import (
    AggregationSettings,
    AttentiveSettings,
    LiteralSettings,
    MeanSettings,
)

FLAT = ClippingSettings(clipping_norm=2.0)
ONE_TENSOR = Schema((TensorSpec(name="only", shape=(3,), layer="only"),))
EQUAL = MeanSettings(weighting="equal")


def bound(
    settings: AggregationSettings,
    schema: Schema = ONE_TENSOR,
    clipping: ClippingSettings = FLAT,
    slot_count: int = 10,
) -> float:
    return aggregate_sensitivity(
        settings, schema, clipping, slot_count=slot_count, adjacency="zero-out"
    )


def test_the_equal_mean_moves_by_the_clip_over_the_slots() -> None:
    # 2 / 10, and 2^-16 of it for measuring; rounding in float64 is far below.
    assert bound(EQUAL) == pytest.approx(0.2 * (1 + 2**-16), rel=1e-12)


def test_the_replaced_update_moves_it_twice_as_far() -> None:
    doubled = aggregate_sensitivity(EQUAL, ONE_TENSOR, FLAT, slot_count=10, adjacency="replace-one")

    assert doubled == pytest.approx(2 * bound(EQUAL), rel=1e-12)


def test_the_servers_step_does_not_count_noise_is_added_before_it() -> None:
    assert bound(MeanSettings(weighting="equal", server_step_size=5.0)) == bound(EQUAL)


def test_attention_pays_its_price() -> None:
    # One layer, kappa = 0.5, M = 10: C E / (E + 9).
    strong = math.exp(0.5)

    assert bound(AttentiveSettings(attention_strength=0.5)) == pytest.approx(
        2 * strong / (strong + 9) * (1 + 2**-16), rel=1e-12
    )


def test_what_counts_as_a_layer_is_the_rules_grouping(schema: Schema) -> None:
    # Two slots are too few for a flat clip over several layers, and no matter for one.
    one_layer = Schema(
        tuple(
            TensorSpec(name=tensor.name, shape=tensor.shape, layer="all")
            for tensor in schema.tensors
        )
    )

    assert bound(AttentiveSettings(grouping="layer"), one_layer, slot_count=2) > 0
    with pytest.raises(UnprovedSensitivityError, match="slot_count must be >= 3"):
        bound(AttentiveSettings(grouping="tensor"), one_layer, slot_count=2)


def test_clips_of_their_own_are_proved_where_one_clip_is_not(schema: Schema) -> None:
    own = ClippingSettings(clipping_norm=2.0, clipping="per-layer")

    # kappa < 0 and three layers: C E / (E + 9) with the norm of all clips, which is C.
    strong = math.exp(0.5)
    assert bound(AttentiveSettings(attention_strength=-0.5), schema, own) == pytest.approx(
        2 * strong / (strong + 9) * (1 + 2**-16), rel=1e-12
    )
    with pytest.raises(UnprovedSensitivityError, match="attention_strength must lie in"):
        bound(AttentiveSettings(attention_strength=-0.5), schema)


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        (MeanSettings(), 'weighting = "equal"'),
        (LiteralSettings(), '"attentive" or "mean"'),
    ],
)
def test_a_rule_without_a_bound_is_refused_with_the_remedy(
    settings: AggregationSettings, remedy: str
) -> None:
    with pytest.raises(UnprovedSensitivityError, match=remedy):
        bound(settings)


def test_updates_without_a_clip_have_no_bound() -> None:
    with pytest.raises(UnprovedSensitivityError, match="clipping_norm must be given"):
        bound(EQUAL, clipping=ClippingSettings())
