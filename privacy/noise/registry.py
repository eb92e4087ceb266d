"""The choice of a noise mode: the one place that both ends and the simulation ask.

A new mode is its settings in ``privacy/noise/settings.py``, one file with its ``NoiseMode``, and
one line here.
"""

from typing import assert_never

from privacy.noise.blt import BufferedGaussian
from privacy.noise.calibrated_settings import CentralNoise, LocalNoise, TreeNoise
from privacy.noise.gaussian import CentralGaussian, LocalGaussian
from privacy.noise.masked import MaskedShares
from privacy.noise.masked_settings import MaskedNoise
from privacy.noise.mode import NoiseMode
from privacy.noise.randomisation import PaperRandomisation, PaperServerRandomisation, WithoutNoise
from privacy.noise.settings import NoNoise, PaperNoise, PaperServerNoise, PrivacySettings
from privacy.noise.tree import TreeGaussian


def noise_mode(settings: PrivacySettings) -> NoiseMode:
    """Return the mode that the settings name."""
    match settings:
        case LocalNoise():
            return LocalGaussian(settings)
        case CentralNoise():
            return CentralGaussian(settings)
        case TreeNoise():
            return (
                TreeGaussian(settings) if settings.buffers is None else BufferedGaussian(settings)
            )
        case MaskedNoise():
            return MaskedShares(settings)
        case _:
            return _without_guarantee(settings)


def _without_guarantee(settings: NoNoise | PaperNoise | PaperServerNoise) -> NoiseMode:
    match settings:
        case NoNoise():
            return WithoutNoise(settings)
        case PaperNoise():
            return PaperRandomisation(settings)
        case PaperServerNoise():
            return PaperServerRandomisation(settings)
        case _:
            assert_never(settings)
