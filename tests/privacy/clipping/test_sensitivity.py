import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.clipping.sensitivity import (
    Adjacency,
    UnprovedSensitivityError,
    attentive_sensitivity,
    mean_sensitivity,
)

ADJACENCIES: tuple[Adjacency, ...] = ("zero-out", "replace-one", "add-remove")


def of_one_layer(
    slot_count: int,
    strength: float,
    clipping_norm: float = 1.0,
    adjacency: Adjacency = "zero-out",
) -> float:
    return attentive_sensitivity(
        slot_count=slot_count,
        attention_strength=strength,
        clipping_norms=[clipping_norm],
        layer_count=1,
        adjacency=adjacency,
    )


def of_flat_clip(slot_count: int, strength: float, adjacency: Adjacency = "zero-out") -> float:
    return attentive_sensitivity(
        slot_count=slot_count,
        attention_strength=strength,
        clipping_norms=[1.0],
        layer_count=3,
        adjacency=adjacency,
    )


@pytest.mark.parametrize(
    ("slot_count", "clipping_norm", "expected"),
    [
        (10, 0.1, 0.010937),
        (10, 0.5, 0.077414),
        (10, 1.0, 0.231969),
        (10, 2.0, 0.905234),  # Fewer than n0 = 15.1 others: above CE/(E + 9) = 0.901706.
        (100, 1.0, 0.026724),
        (100, 2.0, 0.138906),
        (100, 3.0, 0.505994),
    ],
)
def test_zero_out_at_temperature_1_is_the_theorems_number(
    slot_count: int, clipping_norm: float, expected: float
) -> None:
    # λ = 1 means κ = C.
    found = of_one_layer(slot_count, clipping_norm, clipping_norm)

    assert found == pytest.approx(expected, abs=1.1e-6)


def test_other_relations_at_temperature_1_are_the_theorems_numbers() -> None:
    # 2e/(e + 9) and the smaller of that and the chord's bound.
    assert of_one_layer(10, 1.0, adjacency="replace-one") == pytest.approx(0.463939, abs=1e-6)
    assert of_one_layer(10, 1.0, adjacency="add-remove") == pytest.approx(0.258, abs=5e-4)


def test_zero_out_of_few_clients_is_the_largest_move_that_one_other_can_add() -> None:
    # Brute force over the one other client's norm t, in steps of κ/20,000.
    for slot_count, strength in [(2, 0.3), (3, 1.0), (10, 3.0), (50, 4.0)]:
        ratio, others = math.exp(strength), slot_count - 1
        best = max(
            (strength * ratio + (ratio - 1) * t * math.exp(t) / (others + math.exp(t)))
            / (strength * (ratio + others - 1 + math.exp(t)))
            for t in (strength * step / 20_000 for step in range(20_001))
        )

        assert of_one_layer(slot_count, strength) == pytest.approx(best, rel=1e-6)
        assert of_one_layer(slot_count, strength) >= best


@pytest.mark.parametrize(
    ("strength", "price"), [(0.1, 1.10), (0.5, 1.64), (1.0, 2.67), (2.0, 6.9), (3.0, 16.87)]
)
def test_attention_has_its_price(strength: float, price: float) -> None:
    # 100 E/(E + 99); at κ = 3, 100 * 0.505994 / 3.
    mean = mean_sensitivity(slot_count=100, clipping_norms=[1.0])

    assert of_one_layer(100, strength) / mean == pytest.approx(price, rel=8e-3)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_without_attention_every_bound_is_the_means(adjacency: Adjacency) -> None:
    expected = mean_sensitivity(slot_count=7, clipping_norms=[1.0], adjacency=adjacency)

    assert expected == pytest.approx((1 if adjacency == "zero-out" else 2) / 7)
    assert of_one_layer(7, 0.0, adjacency=adjacency) == pytest.approx(expected)
    assert of_flat_clip(7, 0.0, adjacency) == pytest.approx(expected)
    assert of_flat_clip(2, 0.0, adjacency) == pytest.approx(3.5 * expected)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_without_others_the_one_client_is_the_aggregate(adjacency: Adjacency) -> None:
    found = of_one_layer(1, 2.0, clipping_norm=3.0, adjacency=adjacency)

    assert found == pytest.approx(3.0 if adjacency == "zero-out" else 6.0)


@pytest.mark.slow
@settings(deadline=None)  # Two clients under little attention take a search of a tenth of a second.
@given(slot_count=st.integers(2, 10_000), strength=st.floats(0, 50))
def test_relations_keep_their_order(slot_count: int, strength: float) -> None:
    zero_out, replace_one, add_remove = (
        of_one_layer(slot_count, strength, adjacency=adjacency) for adjacency in ADJACENCIES
    )

    assert zero_out <= replace_one
    assert add_remove <= replace_one
    # Removing an update cannot be worth less than half of the largest replacement.
    assert replace_one / 2 <= min(zero_out, add_remove) * (1 + 1e-9)


@settings(deadline=None)
@given(slot_count=st.integers(3, 10_000), strength=st.floats(0, 1))
def test_one_clip_over_many_layers_costs_little_more_than_over_one(
    slot_count: int, strength: float
) -> None:
    # The always-valid bound is at most 3 % above the exact one for κ <= 1 and M >= 3.
    one, flat = of_one_layer(slot_count, strength), of_flat_clip(slot_count, strength)

    assert one * (1 - 1e-6) <= flat <= 1.03 * one
    assert of_flat_clip(slot_count, strength, "replace-one") == 2 * flat


@given(slot_count=st.integers(1, 1000), strength=st.floats(0.01, 50))
def test_negative_attention_moves_as_far_as_the_largest_share(
    slot_count: int, strength: float
) -> None:
    share = math.exp(strength) / (math.exp(strength) + slot_count - 1)

    assert of_one_layer(slot_count, -strength) == pytest.approx(share)
    assert of_one_layer(slot_count, -strength, adjacency="replace-one") == pytest.approx(2 * share)
    assert of_one_layer(slot_count, -strength, adjacency="add-remove") == pytest.approx(2 * share)


@pytest.mark.parametrize("strength", [-0.5, 0.0, 0.5, 4.0])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_clips_of_layers_add_up_as_squares(adjacency: Adjacency, strength: float) -> None:
    found = attentive_sensitivity(
        slot_count=10,
        attention_strength=strength,
        clipping_norms=[3.0, 4.0, 12.0],
        layer_count=3,
        adjacency=adjacency,
    )

    squares = sum(
        of_one_layer(10, strength, norm, adjacency=adjacency) ** 2 for norm in (3.0, 4.0, 12.0)
    )
    assert found == pytest.approx(math.sqrt(squares))


def test_the_step_size_scales_what_is_released() -> None:
    attentive = attentive_sensitivity(
        slot_count=10,
        attention_strength=1.0,
        clipping_norms=[1.0],
        layer_count=1,
        server_step_size=1.2,
    )
    mean = mean_sensitivity(slot_count=10, clipping_norms=[3.0, 4.0], server_step_size=1.2)

    assert attentive == pytest.approx(1.2 * 0.231969, rel=1e-5)
    assert mean == pytest.approx(1.2 * 5 / 10)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(
    ("slot_count", "strength", "told"),
    [
        (10, 1.01, r"attention_strength must lie in \[0, 1\].*got 1.01.*clip each layer"),
        (10, -0.1, r"attention_strength must lie in \[0, 1\].*got -0.1.*clip each layer"),
        (2, 0.5, r"slot_count must be >= 3.*got 2.*draw more clients"),
    ],
)
def test_a_flat_clip_outside_the_proved_range_is_refused(
    slot_count: int, strength: float, told: str, adjacency: Adjacency
) -> None:
    with pytest.raises(UnprovedSensitivityError, match=told):
        of_flat_clip(slot_count, strength, adjacency)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"slot_count": 0}, "slot_count must be >= 1, got 0"),
        ({"attention_strength": math.nan}, "attention_strength must lie in .* got nan"),
        ({"attention_strength": -501.0}, r"attention_strength must lie in \[-500, 500\], got -501"),
        ({"clipping_norms": []}, "clipping_norms must hold at least one"),
        ({"clipping_norms": [0.0]}, "clipping_norms must be > 0 and finite, got 0.0"),
        ({"clipping_norms": [1.0, math.nan]}, "clipping_norms must be > 0 and finite, got nan"),
        ({"clipping_norms": [1.0] * 3}, "one for each of 2, got 3"),
        ({"layer_count": 0}, "one for each of 0, got 2"),
        ({"server_step_size": math.inf}, "server_step_size must be > 0 and finite, got inf"),
        ({"adjacency": "swap"}, "adjacency must be one of zero-out, .* got 'swap'"),
    ],
)
def test_arguments_out_of_range_are_refused(changed: dict[str, object], told: str) -> None:
    arguments = {
        "slot_count": 10,
        "attention_strength": 0.5,
        "clipping_norms": [1.0, 1.0],
        "layer_count": 2,
    }

    with pytest.raises(ValueError, match=told):
        attentive_sensitivity(**(arguments | changed))  # type: ignore[arg-type]  # wrong on purpose
