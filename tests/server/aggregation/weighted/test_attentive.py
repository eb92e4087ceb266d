import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from models.vector.schema import Schema, TensorSpec
from privacy.clipping.clip import clip
from server.aggregation.registry import build_rule
from server.aggregation.rule import AggregationRule
from server.aggregation.settings import AttentiveSettings, LiteralSettings, MeanSettings

SCHEMA = Schema(
    (
        TensorSpec(name="first.weight", shape=(3, 4), layer="first"),
        TensorSpec(name="first.bias", shape=(4,), layer="first"),
        TensorSpec(name="second.bias", shape=(5,), layer="second"),
    )
)


def attentive(
    schema: Schema, *, strength: float, slot_count: int, clipping_norm: float = 1.0
) -> AggregationRule:
    settings = AttentiveSettings(attention_strength=strength)
    return build_rule(settings, schema, slot_count=slot_count, clipping_norm=clipping_norm)


def drawn_updates(seed: int, count: int, scale: float = 0.1) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(SCHEMA.element_count, generator=generator) * scale * (1 + index % 3)
        for index in range(count)
    ]


def bits(values: Tensor) -> Tensor:
    return values.view(torch.int32)


def stacked_attention(
    updates: list[Tensor], schema: Schema, *, strength: float, clipping_norm: float
) -> Tensor:
    """Compute the same in float64 from the stacked cohort: [FedAtt] Eq. 2 at λ = κ/C."""
    stacked = torch.stack([update.double() for update in updates])
    norms = stacked.norm(dim=1, keepdim=True)
    stacked = stacked * torch.clamp(clipping_norm / norms, max=1)
    layers = []
    for where in schema.slices.values():
        layer = stacked[:, where]
        weights = torch.softmax(strength / clipping_norm * layer.norm(dim=1), dim=0)
        layers.append(torch.einsum("k,kn->n", weights, layer))
    return torch.cat(layers)


def test_the_client_that_moved_furthest_weighs_most() -> None:
    # κ = ln 4, C = 1: distances 0 and 1 weigh 1/4 and 1, so the mean of 0 and 1 is 0.8.
    schema = Schema((TensorSpec(name="w", shape=(1,), layer="w"),))
    rule = attentive(schema, strength=math.log(4), slot_count=2)
    rule.add(0, torch.tensor([0.0]), 1)
    rule.add(1, torch.tensor([1.0]), 1)

    weights = rule.weights()

    assert weights is not None
    assert [row[0] for row in weights.shares] == pytest.approx([0.2, 0.8])
    assert_close(rule.result(), torch.tensor([0.8]))


def test_every_tensor_is_weighed_by_itself_unless_grouped_by_layer() -> None:
    # Both clients have norm 1, in different tensors of one layer.
    schema = Schema(
        (
            TensorSpec(name="weight", shape=(1,), layer="one"),
            TensorSpec(name="bias", shape=(1,), layer="one"),
        )
    )
    results = []
    for grouping in ("tensor", "layer"):
        settings = AttentiveSettings(attention_strength=math.log(4), grouping=grouping)
        rule = build_rule(settings, schema, slot_count=2, clipping_norm=1.0)
        rule.add(0, torch.tensor([1.0, 0.0]), 1)
        rule.add(1, torch.tensor([0.0, 1.0]), 1)
        results.append(rule.result())

    assert_close(results[0], torch.tensor([0.8, 0.8]))
    assert_close(results[1], torch.tensor([0.5, 0.5]))


@given(
    seed=st.integers(0, 10_000),
    count=st.integers(1, 8),
    strength=st.floats(-3, 3),
    clipping_norm=st.floats(0.05, 5),
)
def test_streaming_agrees_with_the_stacked_softmax(
    seed: int, count: int, strength: float, clipping_norm: float
) -> None:
    updates = drawn_updates(seed, count)
    rule = attentive(SCHEMA, strength=strength, slot_count=count, clipping_norm=clipping_norm)
    for slot, update in enumerate(updates):
        rule.add(slot, update, 1)

    expected = stacked_attention(updates, SCHEMA, strength=strength, clipping_norm=clipping_norm)

    assert_close(rule.result().double(), expected, rtol=1e-5, atol=1e-6)


def test_clipping_that_never_bites_at_kappa_equal_to_the_clip_is_the_papers_softmax() -> None:
    updates = drawn_updates(5, 10, scale=1.0)
    rule = attentive(SCHEMA, strength=30.0, slot_count=10, clipping_norm=30.0)
    literal = build_rule(LiteralSettings(), SCHEMA, slot_count=10, clipping_norm=None)
    for slot, update in enumerate(updates):
        rule.add(slot, update, 1)
        literal.add(slot, update, 1)
    layers = []
    for where in SCHEMA.slices.values():
        layer = torch.stack([update[where].double() for update in updates])
        layers.append(torch.softmax(layer.norm(dim=1), dim=0) @ layer)

    result = rule.result()
    assert_close(result.double(), torch.cat(layers), rtol=1e-6, atol=1e-6)
    assert_close(result, literal.result(), rtol=1e-6, atol=1e-6)


@given(
    seed=st.integers(0, 10_000),
    filled=st.lists(st.booleans(), min_size=1, max_size=12).filter(any),
    strength=st.floats(-4, 4),
)
def test_an_empty_slot_equals_a_client_that_sent_zeros_bit_for_bit(
    seed: int, filled: list[bool], strength: float
) -> None:
    updates = drawn_updates(seed, len(filled))
    absent = attentive(SCHEMA, strength=strength, slot_count=len(filled))
    zeros = attentive(SCHEMA, strength=strength, slot_count=len(filled))

    for slot, (update, present) in enumerate(zip(updates, filled, strict=True)):
        if present:
            absent.add(slot, update, 1)
        zeros.add(slot, update if present else torch.zeros_like(update), 1)

    assert torch.equal(bits(absent.result()), bits(zeros.result()))


@given(
    seed=st.integers(0, 10_000),
    count=st.integers(1, 6),
    empty=st.integers(0, 4),
    clipping_norm=st.floats(0.05, 5),
)
def test_no_attention_is_the_equal_mean_bit_for_bit(
    seed: int, count: int, empty: int, clipping_norm: float
) -> None:
    slot_count = count + empty
    attention = attentive(SCHEMA, strength=0.0, slot_count=slot_count, clipping_norm=clipping_norm)
    mean = build_rule(
        MeanSettings(weighting="equal"),
        SCHEMA,
        slot_count=slot_count,
        clipping_norm=clipping_norm,
    )
    for slot, update in enumerate(drawn_updates(seed, count)):
        attention.add(slot, update, slot + 1)
        mean.add(slot, update, slot + 1)

    assert torch.equal(bits(attention.result()), bits(mean.result()))


@given(seed=st.integers(0, 10_000), power=st.integers(-20, 20), strength=st.floats(-2, 2))
def test_the_unit_of_the_parameters_plays_no_part(seed: int, power: int, strength: float) -> None:
    # Updates and clip in another unit (a power of two: exact in floats) give the same answer.
    unit = 2.0**power
    here, there = (
        attentive(SCHEMA, strength=strength, slot_count=3, clipping_norm=factor)
        for factor in (1.0, unit)
    )
    for slot, update in enumerate(drawn_updates(seed, 3)):
        here.add(slot, update, 1)
        there.add(slot, update * unit, 1)

    assert_close(there.result() / unit, here.result(), rtol=1e-6, atol=0)


@given(seed=st.integers(0, 10_000), strength=st.floats(0, 2), count=st.integers(2, 8))
def test_no_client_weighs_more_than_the_strength_allows(
    seed: int, strength: float, count: int
) -> None:
    rule = attentive(SCHEMA, strength=strength, slot_count=count)
    outlier = drawn_updates(seed, count)
    outlier[0] = outlier[0] * 1e9
    for slot, update in enumerate(outlier):
        rule.add(slot, clip(update, 1.0)[0], 1)

    weights = rule.weights()

    assert weights is not None
    largest = max(max(row) for row in weights.shares)
    bound = math.exp(strength) / (math.exp(strength) + count - 1)
    assert largest <= bound * (1 + 1e-9)


def test_attention_without_a_clip_to_weigh_against_is_refused() -> None:
    with pytest.raises(ValueError, match=r"set privacy.clipping_norm"):
        build_rule(AttentiveSettings(), SCHEMA, slot_count=2, clipping_norm=None)
