"""Choose the noise mode: the one place that both ends and the simulation ask.

A new mode is its settings in ``privacy/settings.py``, one file with its ``NoiseMode``, and one
line here.
"""

from typing import assert_never

from privacy.calibrated_noise import CentralGaussian, LocalGaussian
from privacy.calibrated_settings import CentralNoise, LocalNoise, TreeNoise
from privacy.noise_mode import NoiseMode
from privacy.randomisation import PaperRandomisation, PaperServerRandomisation, WithoutNoise
from privacy.settings import NoNoise, PaperNoise, PaperServerNoise, PrivacySettings
from privacy.tree_noise import TreeGaussian


def noise_mode(settings: PrivacySettings) -> NoiseMode:
    """Return the mode that the settings name."""
    match settings:
        case NoNoise():
            return WithoutNoise(settings)
        case PaperNoise():
            return PaperRandomisation(settings)
        case PaperServerNoise():
            return PaperServerRandomisation(settings)
        case LocalNoise():
            return LocalGaussian(settings)
        case CentralNoise():
            return CentralGaussian(settings)
        case TreeNoise():
            return TreeGaussian(settings)
        case _:
            assert_never(settings)
