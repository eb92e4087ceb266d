"""The choice of the server half; a method that generates tensors is one file and one case here."""

from torch import Tensor

from models.networks.flat_parameters import initial_parameters
from models.networks.role_vectors import part_of
from models.settings.model import ModelSettings, schema_of
from models.settings.personalisation import (
    FedTpSettings,
    PersonalisationSettings,
    PFedHnSettings,
)
from models.vector.schema import Role, Schema
from server.personalisation.hypernetwork import HypernetworkHalf
from server.personalisation.method import ServerHalf
from server.personalisation.nothing_generated import NothingGenerated


def build_server_half(
    settings: PersonalisationSettings,
    schema: Schema,
    *,
    model: ModelSettings,
    run_seed: int,
    initial: Tensor | None = None,
) -> ServerHalf:
    """Return a method's server half, nothing learnt yet.

    Args:
        schema: The tensors that travel.
        initial: The generated ones as a start has them, flat float32, shape ``(generated
            elements,)``; None draws them as the run's seed draws a model.

    Raises:
        ValueError: If the method generates tensors and nothing here makes them.
    """
    if not isinstance(settings, FedTpSettings | PFedHnSettings):
        return NothingGenerated(schema)
    generated = schema.with_roles(Role.GENERATED)
    if initial is None:
        initial = part_of(initial_parameters(model, run_seed), schema_of(model), generated)
    return HypernetworkHalf(settings.hypernetwork, generated, run_seed=run_seed, initial=initial)
