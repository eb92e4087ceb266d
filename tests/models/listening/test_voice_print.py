import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from models.listening.voice_print import KnownVoices, voice_print

CHANNELS = 20


def _curve(order: int) -> Tensor:
    return torch.cos(math.pi * order * (torch.arange(CHANNELS) + 0.5) / CHANNELS)


def _spoken(bright: float, *, seed: int, frames: int = 40) -> Tensor:
    """Return a clip of noise: some frames loud, some quiet, the loud ones tilted so much."""
    draws = torch.Generator().manual_seed(seed)
    mel = 0.5 * torch.randn(CHANNELS, frames, generator=draws) - 8
    mel[:, ::2] += 6 + bright * _curve(1)[:, None]
    return mel


def test_a_print_is_mean_and_deviation_of_the_coefficients_of_loud_frames() -> None:
    quiet = -9 + 5 * _curve(3)
    mel = torch.stack([1 * _curve(1), quiet, 3 * _curve(1) + _curve(2)], dim=1)

    print_ = voice_print(mel)

    # The first and the last frame are loud: c[1] is 1 and 3, c[2] is 0 and 1, the rest 0.
    expected = torch.zeros(26, dtype=torch.float64)
    expected[0], expected[1], expected[13], expected[14] = 2, 0.5, 1, 0.5
    assert_close(print_, expected, atol=1e-6, rtol=0)


def test_a_clip_is_that_of_the_person_who_sounds_like_it() -> None:
    tilts = {"ada": 0.0, "ben": 1.0, "cleo": 2.0}
    people = KnownVoices(
        {name: [_spoken(tilt, seed=seed) for seed in range(5)] for name, tilt in tilts.items()}
    )

    assert len(people) == 3
    for name, tilt in tilts.items():
        for seed in range(10, 14):
            assert people.nearest(_spoken(tilt, seed=seed, frames=30)) == name


def test_who_cannot_be_known_is_named() -> None:
    clip = _spoken(0.0, seed=1)

    with pytest.raises(ValueError, match=r"at least 2 clips, got fewer of \['ben'\]"):
        KnownVoices({"ada": [clip, clip], "ben": [clip]})
    with pytest.raises(ValueError, match="got fewer of nobody at all"):
        KnownVoices({})
    with pytest.raises(ValueError, match="must be finite"):
        voice_print(torch.full((CHANNELS, 3), torch.nan))
