import math
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from models.settings.audio import MelSettings
from models.sound.griffin_lim import griffin_lim, magnitudes_of_mel, sound_of_mel
from models.sound.mel import log_mel, magnitudes
from models.sound.mel_filters import hann_window, mel_filters
from tests.models.references.mel_signal import reference_signal
from tests.models.tiny_voice import MEL

SETTINGS = MelSettings()
RATE = SETTINGS.sample_rate_hz
UNEVEN = replace(MEL, window_size=101, hop_size=40, lowest_hz=50.0)


def chord() -> torch.Tensor:
    times = torch.arange(64 * 256, dtype=torch.float64) / RATE
    swell = 0.5 + 0.4 * torch.sin(2 * math.pi * 3 * times)
    parts = [torch.sin(2 * math.pi * hertz * times) for hertz in (220.0, 660.0, 1540.0)]
    return 0.2 * swell * torch.stack(parts).sum(0)


def loudest_hz(samples: NDArray[Any]) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(spectrum.argmax()) * RATE / len(samples)


@pytest.mark.parametrize("settings", [SETTINGS, MEL, UNEVEN], ids=["usual", "tiny", "uneven"])
def test_the_window_is_the_transforms_in_the_middle(settings: MelSettings) -> None:
    window = torch.hann_window(settings.window_size, dtype=torch.float64).numpy()
    before = (settings.fft_size - settings.window_size) // 2

    assert_allclose(hann_window(settings)[before : before + len(window)], window, atol=1e-15)


@pytest.mark.parametrize("settings", [SETTINGS, MEL, UNEVEN], ids=["usual", "tiny", "uneven"])
def test_the_amplitudes_of_a_sound_with_its_phases_are_the_sound(settings: MelSettings) -> None:
    sound = np.random.default_rng(0).standard_normal(12 * settings.hop_size)
    spectra = torch.stft(
        torch.from_numpy(sound),
        settings.fft_size,
        settings.hop_size,
        settings.window_size,
        torch.hann_window(settings.window_size, dtype=torch.float64),
        return_complex=True,
    ).t()
    amplitudes, turns = spectra.abs().numpy(), spectra.angle().numpy() / (2 * math.pi)

    # A sound's own transform is where the search stays.
    for iterations in (0, 3):
        found = griffin_lim(amplitudes, turns, settings, iterations=iterations)
        assert_allclose(found, sound, rtol=0, atol=1e-9)


def test_each_stretch_of_the_search_comes_closer_and_faster_than_without_momentum() -> None:
    wanted = magnitudes(chord(), SETTINGS)
    turns = np.random.default_rng(5).random(wanted.t().shape)

    def distance(iterations: int) -> float:
        samples = griffin_lim(wanted.t().numpy(), turns, SETTINGS, iterations=iterations)
        assert samples.shape == (64 * 256,)
        difference = magnitudes(torch.from_numpy(samples), SETTINGS) - wanted
        return float(difference.norm() / wanted.norm())

    found = [distance(iterations) for iterations in (0, 5, 40)]

    assert found[0] > found[1] > found[2]
    # Without momentum 0.18 is left after 40 steps.
    assert found[2] < 0.1


@pytest.mark.parametrize("hertz", [150.0, 440.0, 2000.0])
def test_a_tone_keeps_its_pitch_through_a_mel_spectrogram(hertz: float) -> None:
    times = torch.arange(RATE // 2, dtype=torch.float64) / RATE
    log_mels = log_mel(0.3 * torch.sin(2 * math.pi * hertz * times), SETTINGS).t().numpy()

    samples = sound_of_mel(log_mels, SETTINGS, iterations=30, draws=np.random.default_rng(5))

    # A mel channel is about 37 Hz wide up to 1 kHz, and 3.9 % of its pitch above.
    assert loudest_hz(samples) == pytest.approx(hertz, abs=max(37.0, 0.039 * hertz))


def test_amplitudes_of_a_mel_have_that_mel_again() -> None:
    wanted = log_mel(torch.from_numpy(reference_signal()), SETTINGS).t().numpy()[:5]

    amplitudes = magnitudes_of_mel(wanted, SETTINGS)
    again = np.log(np.maximum(amplitudes @ mel_filters(SETTINGS).T, 1e-5))

    assert amplitudes.shape == (5, 513)
    assert amplitudes.min() >= 0
    assert np.abs(again - wanted).mean() < 0.02


def test_equal_draws_give_equal_sound_in_the_precision_that_came_in_and_others_another() -> None:
    log_mels = np.full((6, 5), -3, dtype=np.float32)

    first, again, other = (
        sound_of_mel(log_mels, MEL, draws=np.random.default_rng(seed), iterations=2)
        for seed in (7, 7, 8)
    )

    assert first.dtype == np.float32
    assert first.shape == (5 * MEL.hop_size,)
    assert_allclose(first, again, rtol=0)
    assert not np.array_equal(first, other)


def test_silence_stays_silent() -> None:
    samples = griffin_lim(np.zeros((4, 513)), np.full((4, 513), 0.3), SETTINGS, iterations=3)

    assert not samples.any()
    assert samples.shape == (3 * 256,)


@pytest.mark.parametrize(
    ("shape", "iterations", "message"),
    [
        ((4, 513), -1, "iterations must be >= 0, got -1"),
        ((4, 80), 1, r"at least 2 frames and 513 bins, got shape \(4, 80\)"),
        ((1, 513), 1, "at least 2 frames"),
    ],
)
def test_what_cannot_be_searched_is_refused(
    shape: tuple[int, int], iterations: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        griffin_lim(np.ones(shape), np.zeros(shape), SETTINGS, iterations=iterations)
