import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from models.listening.mel_cepstrum import mel_cepstral_distortion, mel_cepstrum

CHANNELS = 80


def spectrogram(frames: int = 20) -> Tensor:
    return 3 * torch.randn(CHANNELS, frames, generator=torch.Generator().manual_seed(1))


def wave(order: int) -> Tensor:
    """Return the spectrum whose only coefficient is 1, shape ``(80, 1)``."""
    places = torch.arange(CHANNELS, dtype=torch.float64) + 0.5
    return torch.cos(math.pi / CHANNELS * order * places)[:, None]


def test_a_coefficient_is_the_height_of_its_wave() -> None:
    mel = 4.0 + 0.5 * wave(1) - 2.0 * wave(13) + 7.0 * wave(14)

    expected = torch.zeros(13, 1, dtype=torch.float64)
    expected[0], expected[12] = 0.5, -2.0
    assert_close(mel_cepstrum(mel), expected)


def test_a_shift_of_one_coefficient_costs_what_the_formula_says() -> None:
    mel = spectrogram().double()

    found = mel_cepstral_distortion(mel, mel + 0.5 * wave(3))

    # Every pair differs by 0.5 in one coefficient: 10 sqrt(2) 0.5 / ln 10 = 7.0711 / 2.3026.
    assert found.decibels == pytest.approx(3.0709, abs=1e-4)
    assert found.path.first.tolist() == found.path.second.tolist() == list(range(20))


def test_neither_level_nor_detail_counts() -> None:
    mel = spectrogram().double()

    found = mel_cepstral_distortion(mel, mel + 1.5 + 2.0 * wave(14))

    assert found.decibels == pytest.approx(0, abs=1e-9)


def test_the_same_said_at_half_the_speed_is_the_same() -> None:
    mel = spectrogram()

    slow = mel_cepstral_distortion(mel, mel.repeat_interleave(2, dim=1))

    assert slow.decibels == pytest.approx(0, abs=1e-9)
    assert slow.path.first.tolist() == [place // 2 for place in range(40)]


def test_the_mean_is_over_the_pairs_of_the_path() -> None:
    # One frame against two, one of which is 1 off in one coefficient: two pairs, half of 6.1419.
    mel = torch.zeros(CHANNELS, 1, dtype=torch.float64)

    found = mel_cepstral_distortion(mel, torch.cat([mel, wave(2)], dim=1))

    assert found.decibels == pytest.approx(6.1419 / 2, abs=1e-4)


@pytest.mark.parametrize(
    ("reference", "spoken", "message"),
    [
        (torch.zeros(80, 0), torch.zeros(80, 3), "a frame at least"),
        (torch.zeros(80, 3), torch.zeros(80, 0), "a frame at least"),
        (torch.zeros(13, 3), torch.zeros(13, 3), "more than 13 channels"),
        (torch.zeros(80, 3), torch.zeros(40, 3), "same channels, got 80 and 40"),
        (torch.zeros(80, 3), torch.full((80, 3), math.nan), "finite, got 240"),
        (torch.full((80, 1), -math.inf), torch.zeros(80, 3), "finite, got 80"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    reference: Tensor, spoken: Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        mel_cepstral_distortion(reference, spoken)
