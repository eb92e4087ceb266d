"""Clips and attention measure what a layer computes with, not the raw weight that was stepped.

A layer with He scaling holds its effective weight (`models.layers.he_scaling`), and an update is
the
difference of what is held. So the clip, the attention score and the noise, whose size follows from
the clip, are all of one space, and every bound of `privacy.clipping.sensitivity` holds as it is
proved.
"""

import math

import pytest
import torch
from torch import Tensor, nn

from edge_client.descent.optimisers import Optimiser
from models.layers.he_scaling import HeLinear
from models.networks.flat_parameters import read_parameters, read_update
from models.vector.schema import Schema, TensorSpec
from privacy.clipping.by_layer import clip_update
from privacy.clipping.settings import ClippingSettings
from server.aggregation.registry import build_rule
from server.aggregation.settings import AttentiveSettings
from tests.edge_client.training_plan import make_plan

# 72 weights each. Their scales are sqrt(2 / 18) = 1/3 and sqrt(2 / 8) = 1/2.
SCHEMA = Schema(
    (
        TensorSpec(name="wide.weight", shape=(4, 18), layer="wide"),
        TensorSpec(name="narrow.weight", shape=(9, 8), layer="narrow"),
    )
)
WIDE, NARROW = SCHEMA.slices.values()


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = HeLinear(18, 4, bias=False), HeLinear(8, 9, bias=False)


@pytest.fixture
def update() -> Tensor:
    """Return what Adam's first step changes: 0.06 of each raw weight."""
    network = Scaled()
    before = read_parameters(network, SCHEMA)
    for parameter in network.parameters():
        parameter.grad = torch.full_like(parameter, -1.0)
    training = make_plan(optimiser="adam", learning_rate=0.06).training
    Optimiser(network, SCHEMA, training).step()
    return read_update(network, SCHEMA, before)


def test_a_clip_bounds_the_effective_change(update: Tensor) -> None:
    # 0.06/3 = 0.02 and 0.06/2 = 0.03: sqrt(72 (0.0004 + 0.0009)) = 0.30594. Raw, it is 0.72.
    norm = math.sqrt(0.0936)
    tensors = [WIDE, NARROW]

    fits = clip_update(update, ClippingSettings(clipping_norm=0.31), tensors)
    halved = clip_update(update, ClippingSettings(clipping_norm=norm / 2), tensors)
    by_layer = clip_update(
        update, ClippingSettings(clipping_norm=0.24, clipping="per-layer"), tensors
    )

    assert fits.has_fitted
    assert fits.norm == pytest.approx(norm, rel=1e-4)
    assert not halved.has_fitted
    torch.testing.assert_close(halved.values[WIDE], torch.full((72,), 0.01))
    torch.testing.assert_close(halved.values[NARROW], torch.full((72,), 0.015))
    # Each layer may move by 0.24 / sqrt(2) = 0.16971, and wide moved by 0.02 sqrt(72), as much.
    torch.testing.assert_close(by_layer.values[WIDE], torch.full((72,), 0.02))
    torch.testing.assert_close(by_layer.values[NARROW], torch.full((72,), 0.02))


def test_attention_scores_the_effective_change(update: Tensor) -> None:
    rule = build_rule(
        AttentiveSettings(attention_strength=2.0), SCHEMA, slot_count=2, clipping_norm=0.5
    )

    rule.add(0, update, 1)
    rule.add(1, torch.zeros_like(update), 1)

    # e^{κ(s/C - 1)} against e^-κ: a share of 1 / (1 + e^{-κ s/C}), s = 0.16971 and 0.25456.
    weights = rule.weights()
    assert weights is not None
    for distance, share in zip((0.16971, 0.25456), weights.shares[0], strict=True):
        assert share == pytest.approx(1 / (1 + math.exp(-2 * distance / 0.5)), rel=1e-4)
