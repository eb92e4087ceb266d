import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from models.settings.audio import MelSettings
from models.sound.spectral_distance import SpectralDistance, spectral_distance

SETTINGS = MelSettings()


def noise(level: float = 0.5) -> Tensor:
    return level * torch.randn(2, 4096, generator=torch.Generator().manual_seed(2))


def distance(made: Tensor, right: Tensor) -> SpectralDistance:
    return spectral_distance(made, right, SETTINGS)


def test_equal_sounds_have_no_distance_and_neither_has_silence() -> None:
    for sound in (noise(), torch.zeros(2, 4096)):
        assert all(torch.equal(part, torch.zeros(2)) for part in distance(sound, sound.clone()))
    # Below the floors there is nothing to hear.
    assert not distance(noise(1e-8), torch.zeros(2, 4096)).total.any()


@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_a_sound_at_another_level_is_off_by_the_factor(factor: float) -> None:
    made, right = noise(), noise()
    made[1] *= factor

    found = distance(made, right)

    # Every amplitude is so many times as large, in every transform and every channel.
    assert_close(found.convergence, torch.tensor([0.0, abs(factor - 1)]))
    assert_close(found.log_amplitude, torch.tensor([0.0, abs(math.log(factor))]))
    assert_close(found.mel, torch.tensor([0.0, abs(math.log(factor))]))
    assert_close(found.total, found.convergence + found.log_amplitude + found.mel)


def test_silence_in_place_of_a_sound_misses_all_of_it() -> None:
    found = distance(torch.zeros(2, 4096), noise())

    # All but the floor, 1e-3 of amplitudes around 5 and more.
    assert_close(found.convergence, torch.ones(2), rtol=0, atol=1e-3)


def test_a_wrong_phase_is_nearer_than_a_wrong_pitch() -> None:
    times = torch.arange(8192) / SETTINGS.sample_rate_hz
    tone, turned, higher = (
        torch.sin(2 * math.pi * hertz * times + phase)[None]
        for hertz, phase in ((300.0, 0.0), (300.0, 1.5), (330.0, 0.0))
    )

    # Phases show only where the sound begins and ends.
    assert distance(turned, tone).convergence < 0.5 * distance(higher, tone).convergence


@pytest.mark.parametrize("made", [torch.zeros(1, 4096), torch.zeros(2, 4095), torch.zeros(4096)])
def test_sounds_of_other_shapes_are_refused(made: Tensor) -> None:
    with pytest.raises(ValueError, match="sounds must have one shape"):
        distance(made, noise())


def test_sounds_shorter_than_half_the_longest_transform_are_refused() -> None:
    with pytest.raises(ValueError, match="samples >= 1025"):
        distance(torch.zeros(1, 1024), torch.zeros(1, 1024))
