"""Clip every tensor by itself, on the server too, and count who says that its update fitted."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from models.vector.schema import Schema, TensorSpec
from privacy.clipping.clip import UnusableUpdateError
from privacy.clipping.rule_settings import Grouping
from privacy.noise.mode import Arrival
from server.aggregation.measured_update import IntakeSettings
from server.aggregation.registry import build_rule
from server.aggregation.rule import AggregationRule
from server.aggregation.settings import AttentiveSettings, MeanSettings

SCHEMA = Schema(
    (
        TensorSpec(name="one.weight", shape=(2,), layer="one"),
        TensorSpec(name="one.bias", shape=(1,), layer="one"),
        TensorSpec(name="two.bias", shape=(2,), layer="two"),
    )
)
CLIPS = (5.0, 2.0, 1.0)


def equal_mean(slot_count: int, *, tells_fit: bool = False) -> AggregationRule:
    return build_rule(
        MeanSettings(weighting="equal"),
        SCHEMA,
        slot_count=slot_count,
        clipping_norm=math.hypot(*CLIPS),
        tensor_clips=CLIPS,
        tells_fit=tells_fit,
    )


def test_only_the_tensor_above_its_clip_is_scaled_and_the_update_counted() -> None:
    # Norms 5, 2 and 13 against 5, 2 and 1: the last is scaled to (5, 12) / 13.
    update = torch.tensor([3.0, 4.0, -2.0, 5.0, 12.0])
    rule = equal_mean(1)

    rule.add(0, update, 1)

    assert rule.clipped_count == 1
    expected = torch.tensor([3.0, 4.0, -2.0, 5 / 13, 12 / 13])
    assert_close(rule.result(), expected, atol=2e-6, rtol=0)
    assert update.tolist() == [3.0, 4.0, -2.0, 5.0, 12.0]


def test_an_update_within_every_clip_is_no_fault() -> None:
    rule = equal_mean(1)

    rule.add(0, torch.tensor([3.0, 4.0, 0.0, 0.6, 0.8]) * 0.999, 1)

    assert rule.clipped_count == 0


@pytest.mark.parametrize("grouping", ["tensor", "layer"])
@given(seed=st.integers(0, 1000), strength=st.floats(-3, 3), scale=st.floats(0.01, 10))
def test_attention_weighs_each_layer_against_its_own_clip(
    grouping: Grouping, seed: int, strength: float, scale: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    updates = torch.randn(4, 5, generator=generator) * scale
    rule = build_rule(
        AttentiveSettings(attention_strength=strength, grouping=grouping),
        SCHEMA,
        slot_count=4,
        clipping_norm=math.hypot(*CLIPS),
        tensor_clips=CLIPS,
    )
    for slot, update in enumerate(updates):
        rule.add(slot, update, 1)

    # The same in float64 from the stacked cohort.
    clipped = [
        tensor * torch.clamp(clip / tensor.norm(dim=1, keepdim=True), max=1)
        for tensor, clip in zip(torch.split(updates.double(), [2, 1, 2], dim=1), CLIPS, strict=True)
    ]
    layers = [(clipped[0], CLIPS[0]), (clipped[1], CLIPS[1]), (clipped[2], CLIPS[2])]
    if grouping == "layer":
        layers = [
            (torch.cat(clipped[:2], dim=1), math.hypot(*CLIPS[:2])),
            (clipped[2], CLIPS[2]),
        ]
    expected = torch.cat(
        [
            torch.softmax(strength * layer.norm(dim=1) / clip, dim=0) @ layer
            for layer, clip in layers
        ]
    )
    assert_close(rule.result().double(), expected, rtol=1e-5, atol=1e-5 * scale)


def told(*values: float) -> Tensor:
    return torch.tensor([0.1, 0.1, 0.1, 0.1, 0.1, *values])


def test_updates_that_fitted_are_counted() -> None:
    rule = equal_mean(4, tells_fit=True)
    for slot, fit in enumerate((1.0, 0.0, 1.0, 1.0)):
        rule.add(slot, told(fit), 1)

    assert rule.fitting_count == 3
    # What is told is no parameter: the aggregate has the model's five elements.
    assert_close(rule.result(), torch.full((5,), 0.1))


@pytest.mark.parametrize("value", [-1.0, 0.5, 2.0, 1e9, math.nan])
def test_one_client_cannot_count_as_many(value: float) -> None:
    rule = equal_mean(1, tells_fit=True)

    with pytest.raises(UnusableUpdateError, match=r"slot 0: whether an update fitted .* 0 or 1"):
        rule.add(0, told(value), 1)

    assert rule.contribution_count == rule.fitting_count == 0


def test_an_update_that_does_not_tell_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(6,\)"):
        equal_mean(1, tells_fit=True).add(0, told(), 1)


def test_nothing_is_told_where_nobody_asks() -> None:
    rule = equal_mean(1)
    rule.add(0, told(), 1)

    assert rule.fitting_count == 0


def test_updates_with_noise_cannot_tell() -> None:
    with pytest.raises(ValueError, match="only clipped updates tell"):
        IntakeSettings(SCHEMA, 1, 1.0, Arrival.NOISED, tells_fit=True)


def test_what_attention_scores_under_noise_stays_within_each_clip() -> None:
    settings = IntakeSettings(SCHEMA, 1, math.hypot(*CLIPS), Arrival.NOISED, tensor_clips=CLIPS)
    update = torch.tensor([30.0, 40.0, -1.0, 5.0, 12.0])

    measured = settings.measure(update)

    assert measured.tensor_norms == pytest.approx((5.0, 1.0, 1.0), rel=2e-6)
    assert torch.equal(measured.values, update)
    assert not measured.was_clipped


def test_a_clean_norm_above_its_tensors_clip_is_refused() -> None:
    settings = IntakeSettings(
        SCHEMA, 1, math.hypot(*CLIPS), Arrival.NOISED_WITH_CLEAN_NORMS, tensor_clips=CLIPS
    )

    with pytest.raises(UnusableUpdateError, match=r"within the clipping norm 1\.0"):
        settings.measure(told(0.1, 0.1, 2.0))
