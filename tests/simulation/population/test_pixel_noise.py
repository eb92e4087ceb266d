"""The ladder of camera noise, in pixel levels and before normalisation."""

import math

import pytest
import torch
from torch.testing import assert_close

from models.tasks.image_classification import LabelledImages
from simulation.population.pixel_noise import noise_level, with_pixel_noise


def grey(level: int, count: int = 200) -> LabelledImages:
    pixels = torch.full((count, 8, 8, 3), level, dtype=torch.uint8)
    return LabelledImages(pixels, torch.zeros(count, dtype=torch.int64))


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_ladder_rises_from_clean_to_the_largest() -> None:
    assert [noise_level(place, 5, 20.0) for place in range(5)] == [0.0, 5.0, 10.0, 15.0, 20.0]
    assert noise_level(0, 1, 20.0) == 0.0


@pytest.mark.parametrize("largest", [-1.0, math.nan, math.inf])
def test_a_ladder_without_an_end_is_refused(largest: float) -> None:
    with pytest.raises(ValueError, match="pixel noise must be >= 0 and finite"):
        noise_level(0, 5, largest)


def test_noise_is_of_as_many_pixel_levels_as_asked_for() -> None:
    noisy = with_pixel_noise(grey(128), 20.0, generator=seeded(1)).pixels.double()

    # 38,400 draws: both figures lie within five of their standard errors, 0.1 and 0.07; rounding
    # to whole levels adds a variance of 1/12.
    assert abs(noisy.mean() - 128) < 0.5
    assert abs(noisy.std() - math.sqrt(400 + 1 / 12)) < 0.4


def test_noise_is_clamped_and_no_dark_pixel_is_lost_without_it() -> None:
    dark = with_pixel_noise(grey(0), 20.0, generator=seeded(1)).pixels
    bright = with_pixel_noise(grey(255), 20.0, generator=seeded(1)).pixels

    # Half of the draws are clamped at either end; a few more round to it.
    assert 0.45 < (dark == 0).double().mean() < 0.55
    assert 0.45 < (bright == 255).double().mean() < 0.55
    clean = grey(3)
    assert with_pixel_noise(clean, 0.0, generator=seeded(1)) is clean


def test_the_same_seed_gives_the_same_noise_and_the_images_stay() -> None:
    images = grey(100, count=2)

    one, other = (with_pixel_noise(images, 5.0, generator=seeded(4)) for _ in range(2))

    assert_close(one.pixels, other.pixels)
    assert bool((images.pixels == 100).all())
