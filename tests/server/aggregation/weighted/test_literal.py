import math
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from models.vector.schema import Schema, TensorSpec
from privacy.noise.mode import Arrival
from server.aggregation.registry import build_rule
from server.aggregation.settings import LiteralSettings
from server.aggregation.weighted.literal import spectral_norm


def drawn_updates(schema: Schema, count: int, scale: float = 1.0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [
        torch.randn(schema.element_count, generator=generator) * scale * (1 + index % 4)
        for index in range(count)
    ]


def raw_softmax(updates: list[Tensor], schema: Schema, norm: str) -> Tensor:
    """Compute [FedAtt] Eq. 2 and 4 per tensor with numpy in float64."""
    answer = []
    for tensor, where in zip(schema.tensors, schema.slices.values(), strict=True):
        layer = np.stack(
            [update[where].double().numpy().reshape(tensor.shape) for update in updates]
        )
        order = 2 if norm == "spectral" and len(tensor.shape) == 2 else None
        distances = np.array([np.linalg.norm(client, ord=order) for client in layer])
        weights = np.exp(distances - distances.max())
        answer.append(np.tensordot(weights / weights.sum(), layer, axes=1).ravel())
    return torch.from_numpy(np.concatenate(answer))


@pytest.mark.parametrize("norm", ["frobenius", "spectral"])
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_the_online_softmax_agrees_with_the_paper(
    schema: Schema, norm: Literal["frobenius", "spectral"], scale: float
) -> None:
    # At scale 100 distances reach 1,700, where e^s itself is beyond float64.
    updates = drawn_updates(schema, 9, scale)
    rule = build_rule(LiteralSettings(norm=norm), schema, slot_count=9, clipping_norm=None)
    for slot, update in enumerate(updates):
        rule.add(slot, update, 1)

    expected = raw_softmax(updates, schema, norm)

    assert_close(rule.result().double(), expected, rtol=1e-5, atol=1e-5 * scale)


def test_an_outlier_takes_the_layer() -> None:
    # Distances 1, 1, 1, 1, 10: e^9 / (e^9 + 4) = 0.9995 goes to the last.
    schema = Schema((TensorSpec(name="w", shape=(1,), layer="w"),))
    rule = build_rule(LiteralSettings(), schema, slot_count=5, clipping_norm=None)
    for slot, distance in enumerate((1.0, 1.0, 1.0, 1.0, 10.0)):
        rule.add(slot, torch.tensor([distance]), 1)

    weights = rule.weights()

    assert weights is not None
    assert weights.shares[4][0] == pytest.approx(math.exp(9) / (math.exp(9) + 4))


def test_an_absentee_takes_no_part(schema: Schema) -> None:
    update = drawn_updates(schema, 1)[0]
    rule = build_rule(LiteralSettings(), schema, slot_count=50, clipping_norm=None)

    rule.add(7, update, 1)

    assert_close(rule.result(), update)


def test_grouping_by_layer_weighs_the_tensors_of_a_layer_together(schema: Schema) -> None:
    first, second = torch.zeros(21), torch.zeros(21)
    first[0], second[15] = 3.0, 4.0  # One in the weight, one in the bias of layer "first".
    rule = build_rule(LiteralSettings(grouping="layer"), schema, slot_count=2, clipping_norm=None)
    rule.add(0, first, 1)
    rule.add(1, second, 1)

    weights = rule.weights()

    assert weights is not None
    assert weights.layers == ("first", "second")
    share = 1 / (1 + math.e)  # Distances 3 and 4.
    assert weights.shares[0] == pytest.approx((share, 0.5))


def test_clean_norms_replace_those_that_arrived(schema: Schema) -> None:
    # The noised updates are alike; the clean norms say 0 and ln 3, so the weights are 1/4 and 3/4.
    rule = build_rule(
        LiteralSettings(),
        schema,
        slot_count=2,
        clipping_norm=None,
        arrival=Arrival.NOISED_WITH_CLEAN_NORMS,
    )
    noised = torch.ones(21)
    rule.add(0, torch.cat([noised, torch.zeros(3)]), 1)
    rule.add(1, torch.cat([-noised, torch.full((3,), math.log(3))]), 1)

    assert_close(rule.result(), torch.full((21,), 0.25 - 0.75))


@pytest.mark.parametrize("norms", [[-1.0, 0, 0], [math.nan, 0, 0], [math.inf, 0, 0], [3.0, 3, 3]])
def test_clean_norms_that_cannot_be_are_refused(schema: Schema, norms: list[float]) -> None:
    rule = build_rule(
        LiteralSettings(),
        schema,
        slot_count=2,
        clipping_norm=5.0,  # |(3, 3, 3)| = 5.196
        arrival=Arrival.NOISED_WITH_CLEAN_NORMS,
    )

    with pytest.raises(ValueError, match="slot 1: clean norms must be"):
        rule.add(1, torch.cat([torch.ones(21), torch.tensor(norms)]), 1)


def test_clean_scores_and_the_spectral_norm_do_not_go_together(schema: Schema) -> None:
    with pytest.raises(ValueError, match="Frobenius"):
        build_rule(
            LiteralSettings(norm="spectral"),
            schema,
            slot_count=2,
            clipping_norm=None,
            arrival=Arrival.NOISED_WITH_CLEAN_NORMS,
        )


@pytest.mark.parametrize("shape", [(1, 1), (40, 7), (7, 40), (6, 3, 5)])
def test_the_spectral_norm_is_the_largest_singular_value(shape: tuple[int, ...]) -> None:
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(1))

    largest = np.linalg.svd(tensor.flatten(1).double().numpy(), compute_uv=False)[0]

    assert spectral_norm(tensor) == pytest.approx(largest, rel=1e-9)


def test_the_spectral_norm_of_nothing_is_nothing() -> None:
    assert spectral_norm(torch.zeros(4, 5)) == 0.0
