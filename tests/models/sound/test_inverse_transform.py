import pytest
import torch
from torch.testing import assert_close

from models.settings.audio import MelSettings
from models.sound.inverse_transform import InverseTransform
from models.sound.mel import transform

# A window shorter than the transform, and hops that do not divide it.
UNEVEN = MelSettings(fft_size=600, window_size=500, hop_size=130)


def noise(samples: int) -> torch.Tensor:
    return 0.3 * torch.randn(2, samples, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("settings", [MelSettings(), UNEVEN])
def test_the_inverse_of_a_transform_is_the_sound(settings: MelSettings) -> None:
    sound = noise(20 * settings.hop_size)
    spectra = transform(sound, settings).transpose(1, 2)

    found = InverseTransform(settings)(spectra.real, spectra.imag)

    assert_close(found, sound, rtol=0, atol=1e-5)


def test_spectra_that_no_sound_has_become_the_sound_that_torch_makes() -> None:
    settings = MelSettings()
    real, imaginary = noise(9 * settings.bin_count).view(2, 9, settings.bin_count)
    window = torch.hann_window(settings.window_size)
    expected = torch.istft(
        torch.complex(real, imaginary).t(), settings.fft_size, settings.hop_size, window=window
    )

    found = InverseTransform(settings)(real[None], imaginary[None])

    assert found.shape == (1, 8 * settings.hop_size)
    assert_close(found[0], expected, rtol=0, atol=1e-5)


def test_nothing_of_it_travels() -> None:
    assert not InverseTransform(MelSettings()).state_dict()
