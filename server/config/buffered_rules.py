"""Refuse what does not go with buffered asynchronous rounds, with the reason.

No torch: a file is checked before torch is needed.
"""

from models.settings.compression import CompressionSettings
from models.settings.growth import GrowthSettings
from models.vector.schema import Role, Schema
from privacy.noise.calibrated_settings import CentralNoise, TreeNoise
from privacy.noise.settings import PrivacySettings
from server.config.evaluation import EvaluationSettings


def check_buffered(
    schema: Schema,
    privacy: PrivacySettings,
    *,
    compression: CompressionSettings | None,
    growth: GrowthSettings | None,
    evaluation: EvaluationSettings,
) -> None:
    """Check that a federation's other settings stand updates of different ages in one release.

    Args:
        schema: Every tensor of the model, with its role.
        privacy: Clipping and noise.
        compression: In which form updates travel.
        growth: When the model gets its layers, if it does.
        evaluation: How released models are measured.

    Raises:
        ValueError: If one does not; names the setting and the remedy.
    """
    _check_privacy(privacy)
    generated = schema.with_roles(Role.GENERATED).tensors
    if generated:
        raise ValueError(
            f"rounds.buffered must be absent where a hypernetwork generates {generated[0].name}: "
            "what a stale update teaches is a gradient at a state that the server no longer has; "
            "use another personalisation.method, or synchronous rounds"
        )
    if compression is not None and compression.layer_groups is not None:
        raise ValueError(
            "compression.layer_groups must be absent with rounds.buffered: updates of one release "
            "were begun in different rounds, and would be of different layers; remove one of them"
        )
    if growth is not None:
        raise ValueError(
            "growth must be absent with rounds.buffered: an update that was begun before the model "
            "grew fits no sum of the grown one; remove rounds.buffered"
        )
    if evaluation.kind == "devices":
        raise ValueError(
            'evaluation.kind = "devices" asks devices that are still at work with rounds.buffered, '
            'and they would drop their updates; set evaluation.kind = "public" or "none"'
        )


def _check_privacy(privacy: PrivacySettings) -> None:
    if isinstance(privacy, CentralNoise | TreeNoise):
        raise ValueError(
            f'privacy.mode = "{type(privacy).__struct_config__.tag}" must not be used with '
            "rounds.buffered: which updates share a release, and how old each is, follows from how "
            "long every device takes, so that one person moves more than an update of their own, "
            "no cohort is a secret draw, and no sensitivity is proved; remove rounds.buffered"
        )
    if privacy.adaptation is not None:
        raise ValueError(
            "privacy.adaptive_clipping must be absent with rounds.buffered: updates of one release "
            "would be clipped to different norms, and tell whether they fitted those; set a fixed "
            "clipping_norm"
        )
