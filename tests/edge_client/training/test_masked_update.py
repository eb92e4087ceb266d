import hashlib
import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from edge_client.training.masked_update import masked_vector
from models.masked.layout import CHECK_COUNT, MaskedLayout, masked_layout
from models.settings.weighing import AttentiveWeights, EqualWeights, ExampleWeights, Weighing
from privacy.clipping.by_layer import clip_update
from privacy.clipping.settings import AdaptiveClipping
from privacy.masking.grid import from_grid
from privacy.noise.masked_settings import MaskedNoise
from privacy.noise.secure_gaussian import SystemKeys
from tests.masked_scene import RepeatedKeys, masked_noise, masked_plan

# Of one weight matrix and biases: hidden size 2, vocabulary 3.
QUIET = 1e-4


def layout_of(privacy: MaskedNoise, weighing: Weighing) -> MaskedLayout:
    return masked_layout(masked_plan(privacy=privacy, weighing=weighing))


def update_of(layout: MaskedLayout, *values: float) -> torch.Tensor:
    update = torch.zeros(layout.schema.element_count)
    update[: len(values)] = torch.tensor(values)
    return update


def vector_of(
    layout: MaskedLayout,
    privacy: MaskedNoise,
    update: torch.Tensor,
    *,
    example_share: float = 1.0,
    keys: RepeatedKeys | SystemKeys | None = None,
    label: str = "round 1 client a",
) -> NDArray[np.int32]:
    clipped = clip_update(update, privacy, list(layout.schema.slices.values()))
    return masked_vector(
        layout,
        clipped,
        privacy,
        example_share=example_share,
        keys=keys or RepeatedKeys(),
        label=label,
    )


def in_clips(layout: MaskedLayout, vector: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return the noised elements in clipping norms."""
    return from_grid(vector[: layout.noised_count].view(np.uint32), layout.grid)


def tolerance(layout: MaskedLayout) -> float:
    """Return ten standard deviations of a share of the noise, with rounding."""
    return 10 * layout.grid.share_std * layout.grid.step


def test_an_update_is_clipped_and_counted_in_clipping_norms_beside_its_weight() -> None:
    privacy = masked_noise(clipping_norm=2.5, noise_multiplier=QUIET)
    layout = layout_of(privacy, EqualWeights())

    # Of norm 5, so half of (3, 4): 1.5 / 2.5 and 2 / 2.5. The weight 1 is scaled by sqrt(0.1).
    values = in_clips(layout, vector_of(layout, privacy, update_of(layout, 3.0, 4.0)))

    expected = np.zeros(layout.noised_count)
    expected[:2], expected[-1] = (0.6, 0.8), math.sqrt(0.1)
    np.testing.assert_allclose(values, expected, atol=tolerance(layout))
    assert tolerance(layout) < 0.002


def test_a_device_weighs_by_its_share_of_the_cap_and_never_by_more_than_one() -> None:
    privacy = masked_noise(noise_multiplier=QUIET)
    layout = layout_of(privacy, ExampleWeights())
    update = update_of(layout, 0.6, 0.8)

    quarter = in_clips(layout, vector_of(layout, privacy, update, example_share=0.25))
    double = in_clips(layout, vector_of(layout, privacy, update, example_share=2.0))

    np.testing.assert_allclose(quarter[[0, 1, -1]], [0.15, 0.2, 0.25 * math.sqrt(0.1)], atol=0.002)
    np.testing.assert_allclose(double[[0, 1, -1]], [0.6, 0.8, math.sqrt(0.1)], atol=0.002)


@pytest.mark.parametrize(("strength", "weights"), [(math.log(4), (0.5, 0.25)), (-1.0, (0.6065, 1))])
def test_a_device_weighs_each_tensor_by_how_far_it_moved_it(
    strength: float, weights: tuple[float, float]
) -> None:
    privacy = masked_noise(noise_multiplier=QUIET)
    layout = layout_of(privacy, AttentiveWeights(attention_strength=strength, grouping="tensor"))

    # The first tensor moved half a clip: 4^(0.5 - 1), or e^-0.5; the others stood still.
    values = in_clips(layout, vector_of(layout, privacy, update_of(layout, 0.5)))

    rho = math.sqrt(0.1 / len(layout.units))
    assert values[0] == pytest.approx(0.5 * weights[0], abs=0.002)
    np.testing.assert_allclose(
        values[layout.weights][:2], [rho * weights[0], rho * weights[1]], atol=0.002
    )


@pytest.mark.parametrize("fits", [True, False])
def test_a_device_tells_under_the_mask_whether_its_update_fitted(fits: bool) -> None:
    privacy = masked_noise(
        noise_multiplier=QUIET,
        adaptive_clipping=AdaptiveClipping(target_quantile=0.25, count_noise_std=0.001),
    )
    layout = layout_of(privacy, EqualWeights())
    update = update_of(layout, 0.9 if fits else 1.1)

    told = in_clips(layout, vector_of(layout, privacy, update))[-1]

    assert layout.fit_entry is not None
    assert told / layout.fit_entry == pytest.approx(0.75 if fits else -0.25, abs=0.02)


def test_check_elements_are_ones_without_noise() -> None:
    privacy = masked_noise()
    layout = layout_of(privacy, EqualWeights())

    vector = vector_of(layout, privacy, update_of(layout, 1.0))

    assert vector[layout.noised_count :].tolist() == [1] * CHECK_COUNT


def test_a_share_of_the_noise_is_fresh_and_as_large_as_the_grid_says() -> None:
    privacy = masked_noise()
    layout = masked_layout(masked_plan(privacy=privacy, hidden_size=40))
    update = update_of(layout, 0.6, 0.8)

    draws = np.array(
        [in_clips(layout, vector_of(layout, privacy, update, keys=SystemKeys())) for _ in range(4)]
    )

    # 2 x 9,900 differences: the estimate's own standard deviation is 0.5 %, and 2.5 % are five.
    noise = (draws[0] - draws[1], draws[2] - draws[3])
    std = math.sqrt(np.mean(np.square(noise)) / 2)
    share = layout.grid.share_std * layout.grid.step
    assert layout.noised_count > 9_900
    assert std == pytest.approx(share, rel=0.025)


def test_rounding_and_noise_leave_the_mean_where_it_was() -> None:
    privacy = masked_noise(noise_multiplier=0.01)
    layout = layout_of(privacy, EqualWeights())
    update = update_of(layout, 0.3, -0.2, 0.1)

    draws = [
        in_clips(layout, vector_of(layout, privacy, update, keys=RepeatedKeys(seed)))
        for seed in range(400)
    ]

    # The mean of 400 shares: five of its standard deviations are a quarter of one share.
    expected = np.concatenate([update.double().numpy(), [math.sqrt(0.1)]])
    np.testing.assert_allclose(np.mean(draws, axis=0), expected, atol=tolerance(layout) / 40)


def test_noise_follows_from_its_keys_and_label_alone() -> None:
    privacy = masked_noise()
    layout = layout_of(privacy, EqualWeights())
    update = update_of(layout, 1.0)

    def digest(label: str) -> str:
        return hashlib.sha256(vector_of(layout, privacy, update, label=label).tobytes()).hexdigest()

    assert digest("round 1 client a") == digest("round 1 client a")
    assert digest("round 1 client a") != digest("round 1 client b")
