"""Rounds whose noise is on the sums of updates and weights: what is released, and how noisy it is.

The schema has two layers of eight elements, and everybody's update is told by its two norms.
"""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.vector.schema import Schema, TensorSpec
from privacy.clipping.sensitivity import UnprovedSensitivityError
from privacy.clipping.settings import AdaptiveClipping
from privacy.noise.calibrated_settings import CentralNoise, TreeNoise
from privacy.noise.settings import PrivacySettings
from privacy.noise.tree import DerivedKeys
from server.aggregation.noised_sums import SumsForm, sums_form
from server.aggregation.robust_settings import MedianSettings
from server.aggregation.settings import (
    AggregationSettings,
    AttentiveSettings,
    LiteralSettings,
    MeanSettings,
)
from server.closing.close import Closed, Closing, close_round
from server.closing.summing import Contribution

WIDTH = 8
SCHEMA = Schema(
    (
        TensorSpec(name="near.weight", shape=(WIDTH,), layer="near"),
        TensorSpec(name="far.weight", shape=(WIDTH,), layer="far"),
    )
)
WIDE = Schema(
    (
        TensorSpec(name="wide", shape=(40_000,), layer="wide"),
        TensorSpec(name="other", shape=(1,), layer="other"),
    )
)
CLIP = 2.0
GRID = 1e-3
"""Twice the step to which sums are rounded before noise, 2^-12 of the clip here, divided by one."""
KEYS = DerivedKeys(bytes(range(32)))
EQUAL = MeanSettings(weighting="equal")


def central(noise_multiplier: float = 1e-9, **changes: object) -> CentralNoise:
    """Return settings that noise sums, by next to nothing unless told."""
    settings: dict[str, object] = {
        "clipping_norm": CLIP,
        "delta": 1e-6,
        "epsilon_budget": 8.0,
        "adjacency": "zero-out",
        "noise_on": "sums",
    }
    return CentralNoise(noise_multiplier=noise_multiplier, **settings | changes)  # type: ignore[arg-type]


def tree(noise_multiplier: float = 1e-9) -> TreeNoise:
    return TreeNoise(
        clipping_norm=CLIP,
        noise_multiplier=noise_multiplier,
        delta=1e-6,
        epsilon_budget=8.0,
        adjacency="zero-out",
        min_separation=1,
        max_participation=999,
        noise_on="sums",
    )


def update(near: float, far: float) -> Tensor:
    """Return an update whose layers have these norms, each in its first element."""
    values = torch.zeros(2 * WIDTH)
    values[0], values[WIDTH] = near, far
    return values


def close(
    updates: list[Tensor],
    *,
    privacy: PrivacySettings | None = None,
    aggregation: AggregationSettings = EQUAL,
    slot_count: int = 4,
    schema: Schema = SCHEMA,
    round_number: int = 1,
    weights_so_far: tuple[float, ...] | None = None,
    keys: DerivedKeys | None = KEYS,
    parameters: Tensor | None = None,
) -> Closed:
    return close_round(
        torch.zeros(schema.element_count) if parameters is None else parameters,
        (Contribution(slot, values, 1) for slot, values in enumerate(updates)),
        Closing(
            schema=schema,
            aggregation=aggregation,
            privacy=privacy or central(),
            slot_count=slot_count,
            generator=torch.Generator(),
            round_number=round_number,
            noise_keys=keys,
            weights_so_far=weights_so_far,
        ),
    )


def released(updates: NDArray[np.float64], strength: float) -> NDArray[np.float64]:
    """Return attention's mean of ``(clients, 2, WIDTH)`` straight from its definition."""
    norms = np.sqrt((updates**2).sum(axis=2))
    weights = np.exp(strength * norms / CLIP)[..., None]
    mean: NDArray[np.float64] = (weights * updates).sum(axis=0) / weights.sum(axis=0)
    return mean


def test_the_mean_is_over_those_who_came_and_not_over_the_places() -> None:
    closed = close([update(1.0, 0.0), update(0.0, 1.0)], slot_count=4)

    assert closed.parameters[0] == pytest.approx(0.5, abs=GRID)
    assert closed.parameters[WIDTH] == pytest.approx(0.5, abs=GRID)


@pytest.mark.parametrize("strength", [-2.0, -0.5, 0.0, 0.5, 2.0])
def test_attention_is_the_ratio_of_the_two_sums_for_every_strength(strength: float) -> None:
    drawn = np.random.default_rng(3).normal(size=(3, 2, WIDTH))
    drawn *= np.array([0.3, 0.9, 1.9])[:, None, None] / np.sqrt(
        (drawn**2).sum(axis=(1, 2), keepdims=True)
    )

    closed = close(
        [torch.from_numpy(one.ravel()).float() for one in drawn],
        aggregation=AttentiveSettings(attention_strength=strength),
    )

    expected = released(drawn, strength).ravel()
    assert np.allclose(closed.parameters.numpy(), expected, atol=GRID)


def test_a_clip_a_layer_weighs_each_layer_against_its_own() -> None:
    # Ratios 3 and 4 share out a norm of 2: 1.2 and 1.6. Half of either weighs e^-0.5 at kappa 1,
    # and a full one 1.
    privacy = central(clipping="per-layer", layer_ratios=(3.0, 4.0))
    half = math.exp(-0.5)

    closed = close(
        [update(0.6, 1.6), update(1.2, 0.8)],
        privacy=privacy,
        aggregation=AttentiveSettings(attention_strength=1.0),
    )

    near, far = (0.6 * half + 1.2) / (half + 1), (1.6 + 0.8 * half) / (1 + half)
    assert closed.parameters[0] == pytest.approx(near, abs=GRID)
    assert closed.parameters[WIDTH] == pytest.approx(far, abs=GRID)


def test_the_noise_of_the_mean_is_z_s_over_the_weight_that_came() -> None:
    # Forty clients of zeros at kappa 0: V is known to 3 * 1.0488 / 0.3162 * 0.01 = 0.1 clients.
    closed = close(
        [torch.zeros(WIDE.element_count)] * 40,
        privacy=central(0.01),
        slot_count=50,
        schema=WIDE,
    )

    expected = 0.01 * CLIP * math.sqrt(1.1) / 40
    assert float(closed.parameters[:40_000].std()) == pytest.approx(expected, rel=0.03)


def test_attention_needs_less_noise_than_the_same_mean_over_places() -> None:
    # Half of the clip in the one layer: its weight at kappa 1 is e^-0.5, where noise on the mean
    # pays for 100 e / (e + 99) as if nobody had moved: 1.0488 / 0.607 / 2.67 = 0.647.
    values = torch.zeros(WIDE.element_count)
    values[40_000] = 0.0
    values[0] = CLIP / 2
    stds = {
        noise_on: float(
            close(
                [values] * 100,
                privacy=central(0.02, noise_on=noise_on),
                aggregation=AttentiveSettings(attention_strength=1.0),
                slot_count=100,
                schema=WIDE,
            )
            .parameters[1:40_000]
            .std()
        )
        for noise_on in ("mean", "sums")
    }

    strong = math.exp(1)
    # A flat clip over two layers has the bound 2E/(M - 1 + E + sqrt(M(M - 2 + 2E))).
    of_mean = 2 * strong / (99 + strong + math.sqrt(100 * (98 + 2 * strong)))
    of_sums = math.sqrt(1.1) / (100 * math.exp(-0.5))
    assert stds["sums"] / stds["mean"] == pytest.approx(of_sums / of_mean, rel=0.04)
    assert of_sums / of_mean < 0.7


@pytest.mark.parametrize("strength", [0.0, 1.0, -1.0])
def test_a_round_of_nobody_is_noise_over_the_floor(strength: float) -> None:
    closed = close(
        [],
        privacy=central(0.001),
        aggregation=AttentiveSettings(attention_strength=strength),
        slot_count=8,
        schema=WIDE,
    )

    # A quarter of eight places at the least weight, e^-|kappa|.
    expected = 0.001 * CLIP * math.sqrt(1.1) / (2 * math.exp(-abs(strength)))
    assert float(closed.parameters[:40_000].std()) == pytest.approx(expected, rel=0.03)


def test_one_client_in_a_round_of_one_place_is_released_as_it_is_but_for_noise() -> None:
    closed = close([update(0.5, -1.0)], slot_count=1)

    assert closed.parameters[0] == pytest.approx(0.5, abs=GRID)
    assert closed.aggregation_weights is None


def test_an_update_above_the_clip_weighs_as_one_at_the_clip() -> None:
    strong = AttentiveSettings(attention_strength=2.0)
    honest = close([update(CLIP, 0.0), update(0.1, 0.0)], aggregation=strong)
    cheating = close([update(100 * CLIP, 0.0), update(0.1, 0.0)], aggregation=strong)

    assert cheating.clipped_count == 1
    assert torch.allclose(cheating.parameters, honest.parameters, atol=GRID)


@pytest.mark.parametrize(
    ("aggregation", "reason"),
    [
        (MeanSettings(), "no device tells the coordinator its own"),
        (LiteralSettings(), "bounds nobody's weight"),
        (MedianSettings(), "looks at every update"),
    ],
)
def test_a_rule_that_is_no_ratio_of_bounded_sums_is_refused(
    aggregation: AggregationSettings, reason: str
) -> None:
    with pytest.raises(UnprovedSensitivityError, match=reason):
        close([update(1.0, 0.0)], aggregation=aggregation)


def test_the_count_behind_an_adaptive_clip_goes_on_as_it_did() -> None:
    adaptive = AdaptiveClipping(count_noise_std=1.0)
    told = torch.cat([update(0.1, 0.0), torch.ones(1)])

    norms = {
        noise_on: close(
            [told, told], privacy=central(0.1, noise_on=noise_on, adaptive_clipping=adaptive)
        ).next_clipping_norm
        for noise_on in ("mean", "sums")
    }

    assert norms["sums"] == norms["mean"] is not None


def run_tree(weights: list[int], noise_multiplier: float) -> tuple[Tensor, tuple[float, ...]]:
    """Return the model after rounds in which so many clients sent zeros, and the weights so far."""
    parameters, so_far = torch.zeros(WIDE.element_count), None
    for number, count in enumerate(weights, start=1):
        closed = close(
            [torch.zeros(WIDE.element_count)] * count,
            privacy=tree(noise_multiplier),
            slot_count=20,
            schema=WIDE,
            round_number=number,
            weights_so_far=so_far,
            parameters=parameters,
        )
        parameters, so_far = closed.parameters, closed.weights_so_far
    assert so_far is not None
    return parameters, so_far


def test_a_tree_counts_the_weights_of_all_rounds() -> None:
    _, so_far = run_tree([4, 10, 7], 1e-6)

    assert so_far == pytest.approx((21.0,), abs=1e-3)


def test_noise_that_a_tree_takes_out_again_leaves_the_model() -> None:
    # Two halves of one node each: after round 4 the whole tree is one draw, over about ten clients.
    parameters, _ = run_tree([8, 12, 10, 10], 0.001)

    one = 0.001 * CLIP * math.sqrt(1.1) / 10
    # Draws 1 and 2 stay with 1/8 - 1/10 and the like of themselves.
    assert one * 0.95 < float(parameters[:40_000].std()) < one * 1.2


def test_a_later_round_of_a_tree_does_not_go_on_without_the_weights_before() -> None:
    with pytest.raises(ValueError, match="weights_so_far must be given from the second round on"):
        close([update(1.0, 0.0)], privacy=tree(), round_number=2)


def test_the_vector_holds_the_sums_and_behind_them_the_weights() -> None:
    # Two layers: rho C = sqrt(0.1 / 2) * 2.
    form = sums_form(AttentiveSettings(attention_strength=0.5), SCHEMA, central(), slot_count=8)

    assert isinstance(form, SumsForm)
    assert form.length == 2 * WIDTH + 2
    assert form.weight_entry == pytest.approx(2 * math.sqrt(0.05))
    assert form.least_total == pytest.approx(2 * math.exp(-0.5))
    filled = form.fill(torch.zeros(form.length, dtype=torch.float64), [3.0, 4.0])
    assert filled[-2:].tolist() == pytest.approx([6 * math.sqrt(0.05), 8 * math.sqrt(0.05)])
    assert form.totals(filled) == pytest.approx((3.0, 4.0))
