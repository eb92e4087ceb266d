"""Refuse what does not go with mode ``masked``, where nobody opens an update. No torch.

Both ends ask: the coordinator for its file, and a device for its plan.
"""

import msgspec

from models.settings.compression import CompressionSettings
from models.settings.personalisation import (
    FedTpSettings,
    PersonalisationSettings,
    PFedHnSettings,
)
from models.settings.weighing import Weighing
from privacy.noise.masked_settings import MaskedNoise
from privacy.noise.settings import PrivacySettings


def check_weighing(privacy: PrivacySettings, weighing: Weighing | msgspec.UnsetType) -> None:
    """Check that a plan says how devices weigh if they do, else ValueError."""
    if isinstance(privacy, MaskedNoise) == isinstance(weighing, msgspec.UnsetType):
        raise ValueError(
            'weighing belongs to privacy.mode = "masked"; got mode '
            f'"{privacy.__struct_config__.tag}" and weighing {weighing}'
        )


def check_masked(
    personalisation: PersonalisationSettings,
    compression: CompressionSettings | None,
    *,
    hides_examples: bool,
) -> None:
    """Check that a method, a compression and the privacy of examples go with masked sums.

    Raises:
        ValueError: If one does not; names the setting, the reason and the remedy.
    """
    if isinstance(personalisation, FedTpSettings | PFedHnSettings):
        raise ValueError(
            f'personalisation.method = "{personalisation.method}" teaches its hypernetwork by each '
            'client\'s own update, and with privacy.mode = "masked" nobody opens one; choose '
            "another method, or another mode"
        )
    if compression is not None and _shortens(compression):
        raise ValueError(
            "compression may say no more than how releases come down with privacy.mode = "
            '"masked": masks hide whole numbers of one width, which privacy decides; set '
            'compression.uplink = "none" and leave out entropy, keep and layer_groups'
        )
    if hides_examples:
        raise ValueError(
            'training.example_privacy must be absent with privacy.mode = "masked": it is for '
            "coordinators that open updates, and its noise would come on top"
        )


def _shortens(compression: CompressionSettings) -> bool:
    """Return whether updates travel in other bytes than they would without the settings."""
    return (
        compression.loses or compression.entropy != "none" or compression.layer_groups is not None
    )
