import math

import pytest

from privacy.clipping.noised_sums import (
    attentive_weight,
    least_weight,
    sums_sensitivity,
    weight_entry,
    weight_scale,
)


def test_the_sums_move_by_the_clip_and_a_tenth_of_its_square_for_the_weights() -> None:
    # sqrt(1 + 0.1) = 1.0488, however many layers.
    for layers in (1, 6, 40):
        assert sums_sensitivity([2.0], layer_count=layers, adjacency="zero-out") == pytest.approx(
            2 * math.sqrt(1.1)
        )


def test_replacing_an_update_moves_the_sums_twice_as_far_as_leaving_it_out() -> None:
    out, replaced, removed = (
        sums_sensitivity([1.0], layer_count=3, adjacency=adjacency)
        for adjacency in ("zero-out", "replace-one", "add-remove")
    )

    assert removed == out
    assert replaced == 2 * out


def test_a_clip_a_layer_counts_as_the_norm_of_all_of_them() -> None:
    # 3, 4 and 12 are 13 together.
    apart = sums_sensitivity([3.0, 4.0, 12.0], layer_count=3, adjacency="zero-out")

    assert apart == pytest.approx(13 * math.sqrt(1.1))
    assert weight_entry([3.0, 4.0, 12.0], 3) == pytest.approx(13 * math.sqrt(0.1 / 3))


def test_six_layers_scale_their_weights_by_the_root_of_a_sixtieth() -> None:
    assert weight_scale(6) == pytest.approx(math.sqrt(1 / 60))


@pytest.mark.parametrize("strength", [-2.0, -0.5, 0.0, 0.5, 2.0])
def test_a_weight_lies_between_the_least_and_one(strength: float) -> None:
    weights = [attentive_weight(distance, 2.0, strength) for distance in (0.0, 0.7, 2.0)]

    assert min(weights) == pytest.approx(least_weight(strength))
    assert max(weights) == 1.0
    # The ratio of any two is that of e^{κ(s/C - 1)}.
    assert weights[1] / weights[0] == pytest.approx(math.exp(strength * 0.35))


@pytest.mark.parametrize("strength", [50.0, 0.5, 0.0, -0.5])
def test_a_distance_a_hair_above_the_clip_weighs_no_more_than_one(strength: float) -> None:
    assert attentive_weight(1.000001, 1.0, strength) <= 1.0


@pytest.mark.parametrize(
    ("norms", "layers", "adjacency", "message"),
    [
        ([1.0, 1.0], 3, "zero-out", "one for each of 3, got 2"),
        ([], 1, "zero-out", "got 0"),
        ([math.nan], 1, "zero-out", "must be > 0 and finite"),
        ([1.0], 0, "zero-out", "one for each of 0"),
        ([1.0], 1, "swap", "adjacency must be one of"),
    ],
)
def test_what_the_theorem_does_not_cover_is_refused(
    norms: list[float], layers: int, adjacency: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        sums_sensitivity(norms, layer_count=layers, adjacency=adjacency)  # type: ignore[arg-type]
