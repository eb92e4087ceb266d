"""What every rule does alike: order, refusals, threads, memory."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from models.vector.schema import Schema, TensorSpec
from server.aggregation.registry import build_rule
from server.aggregation.rule import AggregationRule
from server.aggregation.settings import (
    AggregationSettings,
    AttentiveSettings,
    LiteralSettings,
    MeanSettings,
)

SCHEMA = Schema(
    (
        TensorSpec(name="first.weight", shape=(3, 4), layer="first"),
        TensorSpec(name="second.bias", shape=(5,), layer="second"),
        TensorSpec(name="first.bias", shape=(4,), layer="first"),
    )
)
RULES: list[AggregationSettings] = [
    MeanSettings(),
    MeanSettings(weighting="equal"),
    AttentiveSettings(attention_strength=1.5),
    AttentiveSettings(attention_strength=-1.0, grouping="layer"),
    LiteralSettings(),
    LiteralSettings(grouping="layer"),
    LiteralSettings(norm="spectral"),
]
ALL_RULES = pytest.mark.parametrize("settings", RULES, ids=repr)


def empty_rule(
    settings: AggregationSettings, slot_count: int, clipping_norm: float | None = 2.0
) -> AggregationRule:
    return build_rule(settings, SCHEMA, slot_count=slot_count, clipping_norm=clipping_norm)


def drawn_updates(seed: int, count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(SCHEMA.element_count, generator=generator) * 10.0 ** (index % 4 - 2)
        for index in range(count)
    ]


@ALL_RULES
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e38])
@pytest.mark.parametrize("place", [0, 12, 20])
def test_an_unusable_update_is_refused_by_slot_and_changes_nothing(
    settings: AggregationSettings, value: float, place: int
) -> None:
    good = drawn_updates(4, 2)
    bad = good[0].clone()
    bad[place] = value
    attacked, clean = empty_rule(settings, 3), empty_rule(settings, 3)
    for rule in (attacked, clean):
        rule.add(0, good[0], 1)

    with pytest.raises(ValueError, match="slot 1: client update must"):
        attacked.add(1, bad, 1)
    for rule in (attacked, clean):
        rule.add(2, good[1], 1)

    assert torch.equal(attacked.result(), clean.result())


@pytest.mark.parametrize("slot", [-1, 2, 3])
def test_slots_rise(slot: int) -> None:
    update = drawn_updates(5, 1)[0]
    rule = empty_rule(MeanSettings(), 9)
    rule.add(3, update, 1)

    with pytest.raises(ValueError, match=f"rise: got {slot} after 3"):
        rule.add(slot, update, 1)


def test_over_selection_may_number_slots_beyond_the_places_but_not_fill_more() -> None:
    update = drawn_updates(5, 1)[0]
    rule = empty_rule(MeanSettings(), 2)
    rule.add(1, update, 1)
    rule.add(12, update, 1)

    with pytest.raises(ValueError, match="2 places, slot 13 has none"):
        rule.add(13, update, 1)


@pytest.mark.parametrize(
    "update",
    [
        torch.zeros(20),
        torch.zeros(22),
        torch.zeros(1, 21),
        torch.zeros(21, dtype=torch.float64),
        torch.zeros(42)[::2],
    ],
    ids=["short", "long", "two axes", "float64", "strided"],
)
def test_a_wrong_shape_or_type_is_refused(update: Tensor) -> None:
    with pytest.raises(ValueError, match=r"slot 0: client update must be contiguous float32"):
        empty_rule(MeanSettings(), 1).add(0, update, 1)


@pytest.mark.parametrize("example_count", [0, -5, 10**9 + 1])
def test_an_impossible_example_count_is_refused(example_count: int) -> None:
    with pytest.raises(ValueError, match="slot 0: example_count must lie in"):
        empty_rule(MeanSettings(), 1).add(0, torch.zeros(21), example_count)


@ALL_RULES
def test_a_round_without_clients_has_no_result(settings: AggregationSettings) -> None:
    with pytest.raises(ValueError, match="at least one client update"):
        empty_rule(settings, 3).result()


def test_a_round_has_places() -> None:
    with pytest.raises(ValueError, match="slot_count must be >= 1, got 0"):
        empty_rule(MeanSettings(), 0)


@ALL_RULES
def test_the_result_ends_the_rule_but_not_its_weights(settings: AggregationSettings) -> None:
    rule = empty_rule(settings, 2)
    rule.add(0, drawn_updates(6, 1)[0], 1)
    before = rule.weights()
    rule.result()

    with pytest.raises(ValueError, match="has given its result"):
        rule.add(1, drawn_updates(6, 1)[0], 1)
    with pytest.raises(ValueError, match="has given its result"):
        rule.result()

    assert rule.weights() == before


@ALL_RULES
def test_the_largest_usable_updates_do_not_overflow(settings: AggregationSettings) -> None:
    rule = empty_rule(settings, 3, clipping_norm=1e18)
    for slot in range(3):
        rule.add(slot, torch.full((21,), 2e17), 10**9)

    # Alike in every slot, so every rule answers with the update itself.
    assert_close(rule.result(), torch.full((21,), 2e17), rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    "settings",
    [MeanSettings(), AttentiveSettings(attention_strength=0.7), LiteralSettings()],
    ids=repr,
)
def test_the_bits_do_not_depend_on_the_number_of_threads(settings: AggregationSettings) -> None:
    schema = Schema(
        (
            TensorSpec(name="weight", shape=(1001, 300), layer="one"),
            TensorSpec(name="bias", shape=(1001,), layer="one"),
        )
    )
    generator = torch.Generator().manual_seed(9)
    updates = [torch.randn(schema.element_count, generator=generator) for _ in range(4)]
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        rule = build_rule(settings, schema, slot_count=5, clipping_norm=300.0)
        for slot, update in enumerate(updates):
            rule.add(slot, update, 1)
        results.append(rule.result())

    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
