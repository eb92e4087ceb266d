"""Settings of the checks before an update may count. No torch here."""

import math
from collections.abc import Mapping

import msgspec

from models.plan.release_record import Metric
from privacy.noise.calibrated_settings import LocalNoise
from privacy.noise.masked_settings import MaskedNoise
from privacy.noise.settings import PrivacySettings


class ScreeningSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The updates that are set aside before anything is summed.

    NaN, infinity and norms above 10^18 are always set aside. An update set aside is as if its
    client had not been asked; under a guarantee, which counts on all places, its place stays empty.

    Attributes:
        largest_element: Largest size of any element, in parameter units; absent means any.
        norm_factor: Largest L2 norm as a multiple of the typical one; absent means any. Up to the
            clipping norm no update is too long; without one, below 4 honest ones are lost if
            clients differ much in how much they train.
        norm_quantile: γ, in (0, 1): the typical norm of a round is this quantile of all norms that
            came, refused ones too. It stands while fewer than a share of 1 - γ are bad.
    """

    largest_element: float | None = None
    norm_factor: float | None = None
    norm_quantile: float = 0.5

    def __post_init__(self) -> None:
        element, factor = self.largest_element, self.norm_factor
        if element is not None and not 0 < element < math.inf:
            raise ValueError(f"largest_element must be > 0 and finite, got {element}")
        if factor is not None and not 1 < factor < math.inf:
            raise ValueError(f"norm_factor must be > 1 and finite, got {factor}")
        if not 0 < self.norm_quantile < 1:
            raise ValueError(f"norm_quantile must be > 0 and < 1, got {self.norm_quantile}")


def check_screening(settings: ScreeningSettings, privacy: PrivacySettings) -> None:
    """Check that screening shows nothing of honest clients under a guarantee, else ValueError."""
    if not privacy.guarantees_privacy:
        return
    if settings.norm_factor is not None:
        raise ValueError(
            "screening.norm_factor follows the clients' norms, which no noise covers; leave it out "
            "and let privacy.adaptive_clipping follow them with noise"
        )
    if settings.largest_element is not None and isinstance(privacy, MaskedNoise):
        raise ValueError(
            'screening.largest_element must be absent with privacy.mode = "masked", got '
            f"{settings.largest_element}: nobody opens an update to look at it"
        )
    element, norm = settings.largest_element, privacy.clipping_norm
    if element is not None and (isinstance(privacy, LocalNoise) or privacy.adaptation is not None):
        raise ValueError(
            f'screening.largest_element must be absent in mode "local" and with '
            f"privacy.adaptive_clipping, got {element}: noise and a norm that rises carry honest "
            "updates above it"
        )
    if element is not None and (norm is None or element < norm):
        raise ValueError(
            f"screening.largest_element must be >= the clipping norm {norm} under a guarantee, "
            f"got {element}: honest updates would be set aside, and that would show"
        )


def typical_norm_after(figures: Mapping[str, Metric], growth_stage: int | None) -> float | None:
    """Return the typical norm of a round's figures; None for another stage of growth."""
    norm = figures.get("next_typical_norm")
    if norm is None or figures.get("growth_stage") != growth_stage:
        return None
    return float(norm)
