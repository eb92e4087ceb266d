"""Settings of the fitting by which devices outside all rounds get a model of their own."""

import math

import msgspec

from models.plan.plan import PlanKind
from models.settings.hypernetwork import EmbeddingFitSettings
from models.settings.personalisation import (
    AdaptedSettings,
    DittoSettings,
    FedRodSettings,
    FedTpSettings,
    PersonalisationSettings,
    PFedHnSettings,
    PFedMeSettings,
)
from models.vector.schema import Role, Schema
from privacy.noise.settings import PrivacySettings

_KEEPS_MORE = (AdaptedSettings, DittoSettings, FedRodSettings, PFedMeSettings)
"""Methods that keep a model or a head on the device beside the model's own tensors."""


class FittingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fitting of a new device's embedding or personal tensors, in one check-in.

    Attributes:
        deadline_s: Seconds that a device has for it.
        fit: Passes over its own examples, and an embedding's steps; tensors step as in a round.
    """

    deadline_s: float = 3600.0
    fit: EmbeddingFitSettings = EmbeddingFitSettings()

    def __post_init__(self) -> None:
        if not 0 < self.deadline_s < math.inf:
            raise ValueError(f"deadline_s must be > 0 and finite, got {self.deadline_s}")


def fit_kind(personalisation: PersonalisationSettings) -> PlanKind:
    """Return how a device that took part in no round gets a model of its own."""
    embeds = isinstance(personalisation, FedTpSettings | PFedHnSettings)
    return "fit_embedding" if embeds else "fit_personal"


def check_fitting(
    fitting: FittingSettings,
    personalisation: PersonalisationSettings,
    schema: Schema,
    privacy: PrivacySettings,
) -> None:
    """Check that a federation's method and noise mode go with fitting.

    Raises:
        ValueError: If they do not; names the remedy.
    """
    if not isinstance(personalisation, FedTpSettings | PFedHnSettings):
        _check_personal(fitting.fit, personalisation, schema)
        return
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


def _check_personal(
    fit: EmbeddingFitSettings, personalisation: PersonalisationSettings, schema: Schema
) -> None:
    has_personal = bool(schema.with_roles(Role.PERSONAL).tensors)
    if not (has_personal or isinstance(personalisation, _KEEPS_MORE)):
        raise ValueError(
            f"fitting learns what is a device's own, and personalisation.method = "
            f'"{personalisation.method}" leaves this model nothing to fit; remove [fitting]'
        )
    if fit != EmbeddingFitSettings(epochs=fit.epochs):
        raise ValueError(
            "fitting.fit may say no more than epochs with personalisation.method = "
            f'"{personalisation.method}": the rest is about embeddings, and tensors step as '
            "[training] says"
        )
    if isinstance(personalisation, AdaptedSettings) and fit.epochs != 1 and not has_personal:
        raise ValueError(
            f'fitting.fit.epochs must be 1 with personalisation.method = "adapted", got '
            f"{fit.epochs}: personalisation.epochs says how long a device adapts"
        )
