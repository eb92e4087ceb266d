import math

import pytest
import torch

from models.settings.audio import MelSettings
from models.sound.griffin_lim import griffin_lim, sound_of_mel, spectral_convergence
from models.sound.mel import log_mel, magnitudes

SETTINGS = MelSettings()
RATE = SETTINGS.sample_rate_hz


def chord() -> torch.Tensor:
    times = torch.arange(64 * 256, dtype=torch.float64) / RATE
    swell = 0.5 + 0.4 * torch.sin(2 * math.pi * 3 * times)
    parts = [torch.sin(2 * math.pi * hertz * times) for hertz in (220.0, 660.0, 1540.0)]
    return 0.2 * swell * torch.stack(parts).sum(0)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def loudest_hz(samples: torch.Tensor) -> float:
    spectrum = torch.fft.rfft(samples * torch.hann_window(len(samples), dtype=samples.dtype)).abs()
    return float(spectrum.argmax()) * RATE / len(samples)


def test_each_stretch_of_the_search_comes_closer_and_momentum_closer_still() -> None:
    wanted = magnitudes(chord(), SETTINGS)

    def distance(iterations: int, momentum: float) -> float:
        samples = griffin_lim(
            wanted, SETTINGS, iterations=iterations, momentum=momentum, generator=generator()
        )
        assert samples.shape == (64 * 256,)
        return spectral_convergence(wanted, samples, SETTINGS)

    plain = [distance(iterations, 0.0) for iterations in (0, 5, 40)]
    assert plain[0] > plain[1] > plain[2]
    assert distance(40, 0.99) < plain[2]


def test_the_right_sound_has_no_distance() -> None:
    assert spectral_convergence(magnitudes(chord(), SETTINGS), chord(), SETTINGS) == 0


@pytest.mark.parametrize("hertz", [150.0, 440.0, 2000.0])
def test_a_tone_keeps_its_pitch_through_a_mel_spectrogram(hertz: float) -> None:
    times = torch.arange(RATE // 2, dtype=torch.float64) / RATE
    mel = log_mel(0.3 * torch.sin(2 * math.pi * hertz * times), SETTINGS)

    samples = sound_of_mel(mel, SETTINGS, iterations=30, generator=generator())

    # A mel channel is about 37 Hz wide up to 1 kHz, and 3.9 % of its pitch above.
    assert loudest_hz(samples) == pytest.approx(hertz, abs=max(37.0, 0.039 * hertz))


def test_the_same_generator_gives_the_same_sound_and_another_another() -> None:
    wanted = magnitudes(chord(), SETTINGS)

    first, again = (
        griffin_lim(wanted, SETTINGS, iterations=2, generator=generator()) for _ in range(2)
    )
    other = griffin_lim(wanted, SETTINGS, iterations=2, generator=torch.Generator().manual_seed(6))

    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_silence_stays_silent() -> None:
    wanted = torch.zeros(513, 4)

    samples = griffin_lim(wanted, SETTINGS, iterations=3, generator=generator())

    assert torch.equal(samples, torch.zeros(3 * 256))


@pytest.mark.parametrize(
    ("shape", "iterations", "momentum", "message"),
    [
        ((513, 4), -1, 0.5, "iterations must be >= 0, got -1"),
        ((513, 4), 1, 1.5, r"momentum must be in \[0, 1\], got 1.5"),
        ((80, 4), 1, 0.5, r"513 bins and at least 2 frames, got shape \(80, 4\)"),
        ((513, 1), 1, 0.5, "at least 2 frames"),
    ],
)
def test_what_cannot_be_searched_is_refused(
    shape: tuple[int, int], iterations: int, momentum: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        griffin_lim(
            torch.ones(shape),
            SETTINGS,
            iterations=iterations,
            momentum=momentum,
            generator=generator(),
        )
