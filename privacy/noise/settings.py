"""Settings that decide how much one client's update can show and move.

Each noise mode is one struct; ``mode`` in TOML picks it. A value that decides privacy has no
default: leaving it out is an error, not a weaker run.

References:
    [FedAtt] Ji et al., IJCNN 2019, arXiv:1812.07108.
"""

import math
from typing import ClassVar, Literal

from privacy.clipping.settings import AdaptiveClippingSettings, ClippingSettings
from privacy.noise.calibrated_settings import CentralNoise, LocalNoise, TreeNoise
from privacy.noise.masked_settings import MaskedNoise

NO_GUARANTEE = "no privacy guarantee"


class _Mode(ClippingSettings, frozen=True, kw_only=True, tag_field="mode"):
    """Clipping as every mode can."""

    guarantees_privacy: ClassVar[bool] = False


class _AdaptiveMode(AdaptiveClippingSettings, frozen=True, kw_only=True, tag_field="mode"):
    """Clipping as a mode can whose updates arrive clipped and without noise."""

    guarantees_privacy: ClassVar[bool] = False


class NoNoise(_AdaptiveMode, frozen=True, kw_only=True, tag="none"):
    """No noise, and no privacy guarantee."""

    @property
    def guarantee(self) -> str:
        """Return what the mode promises, in one line for configuration, logs and reports."""
        return f"none: no noise, {NO_GUARANTEE}"


class PaperNoise(_Mode, frozen=True, kw_only=True, tag="paper"):
    """β·N(0, σ²) that each client adds to what it sends ([FedAtt] Eq. 6). No privacy guarantee.

    Attributes:
        randomisation_magnitude: β, at least 0; scales the draw and gives no epsilon by itself.
        noise_std: σ of the draw before scaling, in parameter units.
        score: Update that attention scores: the update as it ``arrived``, noise and all, or the
            ``clean`` update (Eq. 6 to the letter: the weights are those of the model without
            noise; the client sends its clean layer norms beside the update).
    """

    randomisation_magnitude: float
    noise_std: float = 1.0
    score: Literal["arrived", "clean"] = "arrived"

    @property
    def guarantee(self) -> str:
        """Return what the mode promises, in one line for configuration, logs and reports."""
        beta, std = self.randomisation_magnitude, self.noise_std
        return f"paper: each client adds {beta:g} * N(0, {std:g}^2), {NO_GUARANTEE}"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_magnitude(self.randomisation_magnitude)
        if not 0 < self.noise_std < math.inf:
            raise ValueError(f"noise_std must be > 0 and finite, got {self.noise_std}")


class PaperServerNoise(_AdaptiveMode, frozen=True, kw_only=True, tag="paper-server"):
    """One draw of β·N(0, 1) on the aggregate, as the authors' code does. No guarantee.

    Attributes:
        randomisation_magnitude: β, at least 0, in parameter units; not scaled by the step size.
    """

    randomisation_magnitude: float

    @property
    def guarantee(self) -> str:
        """Return what the mode promises, in one line for configuration, logs and reports."""
        beta = self.randomisation_magnitude
        return f"paper-server: the server adds {beta:g} * N(0, 1) once, {NO_GUARANTEE}"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_magnitude(self.randomisation_magnitude)


PrivacySettings = (
    NoNoise | PaperNoise | PaperServerNoise | LocalNoise | CentralNoise | TreeNoise | MaskedNoise
)


def noises_sums(settings: PrivacySettings) -> bool:
    """Return whether the coordinator noises the sums that a mean is divided from."""
    return isinstance(settings, CentralNoise | TreeNoise) and settings.noise_on == "sums"


def _check_magnitude(magnitude: float) -> None:
    if not 0 <= magnitude < math.inf:
        raise ValueError(f"randomisation_magnitude must be >= 0 and finite, got {magnitude}")
