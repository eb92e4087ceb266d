"""Settings of the fitting by which devices that took part in no round get a model of their own."""

import math

import msgspec

from models.hypernetwork_settings import EmbeddingFitSettings
from models.personalisation_settings import (
    FedTpSettings,
    PersonalisationSettings,
    PFedHnSettings,
)
from privacy.settings import PrivacySettings


class FittingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say how a new device fits its embedding, in one check-in.

    Attributes:
        deadline_s: Seconds that a device has for it.
        fit: Passes over its own examples, and how the embedding steps.
    """

    deadline_s: float = 3600.0
    fit: EmbeddingFitSettings = EmbeddingFitSettings()

    def __post_init__(self) -> None:
        if not 0 < self.deadline_s < math.inf:
            raise ValueError(f"deadline_s must be > 0 and finite, got {self.deadline_s}")


def check_fitting(personalisation: PersonalisationSettings, privacy: PrivacySettings) -> None:
    """Check that a federation's method and noise mode go with fitting.

    Raises:
        ValueError: If they do not; names the remedy.
    """
    if not isinstance(personalisation, FedTpSettings | PFedHnSettings):
        raise ValueError(
            f'fitting learns embeddings, and personalisation.method = "{personalisation.method}" '
            'has none; remove [fitting], or use "fedtp" or "pfedhn"'
        )
    if personalisation.hypernetwork.embeddings == "fixed":
        raise ValueError(
            'fitting learns embeddings, and hypernetwork.embeddings = "fixed" keeps them as they '
            "were drawn; remove [fitting]"
        )
    if privacy.guarantees_privacy:
        raise ValueError(
            "an embedding that a device has fitted leaves it without noise, which no guarantee "
            "covers; remove [fitting]"
        )
