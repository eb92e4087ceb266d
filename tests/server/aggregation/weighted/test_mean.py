import pytest
import torch
from torch.testing import assert_close

from models.vector.schema import Schema
from server.aggregation.registry import build_rule
from server.aggregation.settings import MeanSettings


def ramp(schema: Schema, value: float) -> torch.Tensor:
    return torch.full((schema.element_count,), value)


def test_clients_weigh_by_their_examples(schema: Schema) -> None:
    rule = build_rule(MeanSettings(), schema, slot_count=2, clipping_norm=None)
    rule.add(0, ramp(schema, 1.0), 30)
    rule.add(1, ramp(schema, 5.0), 10)

    # (30 * 1 + 10 * 5) / 40
    assert_close(rule.result(), ramp(schema, 2.0))


def test_an_absentee_has_no_examples(schema: Schema) -> None:
    rule = build_rule(MeanSettings(), schema, slot_count=9, clipping_norm=None)
    rule.add(4, ramp(schema, 3.0), 7)

    assert_close(rule.result(), ramp(schema, 3.0))


def test_equal_weighting_ignores_examples_and_counts_every_place(schema: Schema) -> None:
    rule = build_rule(MeanSettings(weighting="equal"), schema, slot_count=4, clipping_norm=None)
    rule.add(0, ramp(schema, 1.0), 1000)
    rule.add(3, ramp(schema, 5.0), 1)

    # (1 + 5 + 0 + 0) / 4
    assert_close(rule.result(), ramp(schema, 1.5))


def test_one_update_above_the_clip_is_scaled_down_and_counted(schema: Schema) -> None:
    # 21 ones have norm sqrt(21); clipped to 1 each is 1 / sqrt(21).
    rule = build_rule(MeanSettings(), schema, slot_count=2, clipping_norm=1.0)
    rule.add(0, ramp(schema, 1.0), 1)
    rule.add(1, ramp(schema, 0.0), 1)

    assert rule.clipped_count == 1
    assert_close(rule.result(), ramp(schema, 0.5 / 21**0.5), rtol=2e-6, atol=0)


def test_the_update_handed_in_is_neither_changed_nor_kept(schema: Schema) -> None:
    rule = build_rule(MeanSettings(), schema, slot_count=1, clipping_norm=0.1)
    update = ramp(schema, 1.0)

    rule.add(0, update, 1)

    assert torch.equal(update, ramp(schema, 1.0))
    update.fill_(7.0)
    assert float(rule.result().norm()) == pytest.approx(0.1, rel=1e-5)


def test_weights_are_shares_by_slot(schema: Schema) -> None:
    rule = build_rule(MeanSettings(), schema, slot_count=5, clipping_norm=None)
    rule.add(1, ramp(schema, 1.0), 30)
    rule.add(3, ramp(schema, 5.0), 10)

    weights = rule.weights()

    assert weights is not None
    assert weights.slots == (1, 3)
    assert weights.layers == ("all",)
    assert weights.shares == ((0.75,), (0.25,))


def test_an_empty_place_equals_a_client_that_sent_zeros_bit_for_bit(schema: Schema) -> None:
    # The guarantee needs it: equal weights over a fixed number of places.
    updates = torch.randn(5, schema.element_count, generator=torch.Generator().manual_seed(1))
    absent, zeros = (
        build_rule(MeanSettings(weighting="equal"), schema, slot_count=5, clipping_norm=1.0)
        for _ in range(2)
    )
    for slot, update in enumerate(updates):
        if slot not in (1, 4):
            absent.add(slot, update, 1)
        zeros.add(slot, torch.zeros_like(update) if slot in (1, 4) else update, 1)

    assert torch.equal(absent.result().view(torch.int32), zeros.result().view(torch.int32))
