"""What is made of an update that counts for less because it is stale, rule by rule."""

import math

import msgspec
import pytest
import torch
from torch.testing import assert_close

from models.vector.schema import Schema, TensorSpec
from server.aggregation.registry import build_rule
from server.aggregation.rule import AggregationRule
from server.aggregation.screening import Screen
from server.aggregation.screening_settings import ScreeningSettings
from server.aggregation.settings import AggregationSettings

SCHEMA = Schema((TensorSpec(name="w", shape=(1,), layer="w"),))


def rule_of(
    *, clipping_norm: float | None = 1.0, places: int = 2, **settings: object
) -> AggregationRule:
    decoded: AggregationSettings = msgspec.convert(settings, AggregationSettings)
    return build_rule(decoded, SCHEMA, slot_count=places, clipping_norm=clipping_norm)


def result(rule: AggregationRule, *updates: tuple[float, int, float]) -> torch.Tensor:
    """Return the aggregate of updates of one element: value, example count and scale."""
    for slot, (value, count, scale) in enumerate(updates):
        rule.add(slot, torch.tensor([value]), count, scale=scale)
    return rule.result()


def test_a_stale_update_moves_the_mean_less_and_is_not_divided_out_again() -> None:
    # (1 * 0.8 + 3 * 0.5 * 0.4) / (1 + 3): [FedBuff] divides by the buffer, whatever its age.
    mean = rule_of(rule="mean")

    assert_close(result(mean, (0.8, 1, 1.0), (0.4, 3, 0.5)), torch.tensor([0.35]))


def test_where_all_are_alike_stale_the_model_moves_less() -> None:
    mean = rule_of(rule="mean", weighting="equal")

    assert_close(result(mean, (0.8, 1, 0.5), (0.4, 1, 0.5)), torch.tensor([0.3]))


def test_attention_takes_distances_before_staleness() -> None:
    # κ = ln 4 and C = 1: distances 1 and 0.5 weigh 1 and 4^-0.5 = 1/2, however old they are.
    attentive = rule_of(rule="attentive", attention_strength=math.log(4))

    stepped = result(attentive, (1.0, 1, 0.5), (0.5, 1, 1.0))

    assert_close(stepped, torch.tensor([(1.0 * 0.5 + 0.5 * 0.5) / 1.5]))


def test_an_update_is_clipped_before_staleness() -> None:
    mean = rule_of(rule="mean", weighting="equal")

    stepped = result(mean, (4.0, 1, 0.5), (0.0, 1, 1.0))

    assert_close(stepped, torch.tensor([0.25]))
    assert mean.clipped_count == 1


def test_an_update_is_screened_before_staleness() -> None:
    screen = Screen(ScreeningSettings(norm_factor=2.0), typical_norm=1.0)
    rule = build_rule(
        msgspec.convert({"rule": "mean"}, AggregationSettings),
        SCHEMA,
        slot_count=2,
        clipping_norm=None,
        screen=screen,
    )

    with pytest.raises(ValueError, match="L2 norm <= 2"):
        rule.add(0, torch.tensor([2.5]), 1, scale=0.1)


def test_a_robust_rule_looks_at_updates_as_they_count() -> None:
    # As they count: 0.9, 0.2 and 0.3; as they came the middle one would be 0.4.
    median = rule_of(rule="median", places=3)

    assert_close(result(median, (0.9, 1, 1.0), (0.4, 1, 0.5), (0.3, 1, 1.0)), torch.tensor([0.3]))
