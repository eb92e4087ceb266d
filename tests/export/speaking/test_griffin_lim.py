"""Sound without torch against the same with torch: a second implementation."""

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from numpy.testing import assert_allclose

from export.faces.mel_filters import hann_window, mel_filters
from export.speaking.griffin_lim import griffin_lim, magnitudes_of_mel, sound_of_mel
from models.settings.audio import MelSettings
from models.sound import griffin_lim as with_torch
from models.sound import mel as mel_with_torch
from tests.models.tiny_voice import MEL

UNEVEN = replace(MEL, window_size=101, hop_size=40, lowest_hz=50.0)


@pytest.mark.parametrize("settings", [MelSettings(), MEL, UNEVEN], ids=["usual", "tiny", "uneven"])
def test_filters_and_window_are_those_that_mels_are_made_with(settings: MelSettings) -> None:
    expected = mel_with_torch.mel_filters(settings).numpy()
    window = torch.hann_window(settings.window_size, dtype=torch.float64).numpy()
    before = (settings.fft_size - settings.window_size) // 2

    assert_allclose(mel_filters(settings), expected, atol=1e-15)
    assert_allclose(hann_window(settings)[before : before + len(window)], window, atol=1e-15)


@pytest.mark.parametrize("settings", [MEL, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize("iterations", [0, 1, 20])
def test_the_search_takes_the_same_steps(settings: MelSettings, iterations: int) -> None:
    log_mels = -3 + np.random.default_rng(0).standard_normal((9, 5))
    amplitudes = magnitudes_of_mel(log_mels, settings)
    wanted = mel_with_torch.magnitudes_of_mel(torch.from_numpy(log_mels).t(), settings)
    turns = torch.rand(
        wanted.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )

    found = griffin_lim(amplitudes, turns.numpy().T, settings, iterations=iterations)

    expected = with_torch.griffin_lim(
        wanted,
        settings,
        iterations=iterations,
        generator=torch.Generator().manual_seed(1),
    )
    assert_allclose(amplitudes.T, wanted.numpy(), rtol=1e-9, atol=1e-12)
    assert_allclose(found, expected.numpy(), rtol=0, atol=1e-9)


def test_equal_draws_give_equal_sound_in_the_precision_that_came_in() -> None:
    log_mels = np.full((6, 5), -3, dtype=np.float32)

    first, second = (
        sound_of_mel(log_mels, MEL, draws=np.random.default_rng(7), iterations=2) for _ in range(2)
    )

    assert first.dtype == np.float32
    assert first.shape == (5 * MEL.hop_size,)
    assert_allclose(first, second, rtol=0)
