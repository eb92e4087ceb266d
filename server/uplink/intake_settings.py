"""How a round measures the updates that arrive."""

from models.vector.schema import SENT
from privacy.noise.registry import noise_mode
from server.aggregation.measured_update import IntakeSettings
from server.config.federation import FederationConfig


def intake_settings(config: FederationConfig, growth_stage: int | None = None) -> IntakeSettings:
    """Return how a round measures updates, so that none is acknowledged which its close refuses."""
    schema = config.schema_at(growth_stage).with_roles(*SENT)
    return IntakeSettings(
        schema=schema,
        slot_count=1,  # Measuring is the same for any number.
        clipping_norm=config.privacy.clipping_norm,
        arrival=noise_mode(config.privacy).arrival,
        tensor_clips=config.privacy.tensor_clips(len(schema.tensors)),
        tells_fit=config.privacy.tells_fit,
    )
