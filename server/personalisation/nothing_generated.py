"""The server half of a method whose server only aggregates: no tensor is generated."""

from collections.abc import Mapping

from torch import Tensor

from models.vector.schema import Role, Schema
from privacy.accounting.events import Adjacency
from server.personalisation.round_terms import AddNoise, RoundTerms


class NothingGenerated:
    """The half that generates and learns nothing; every tensor that travels must be shared."""

    def __init__(self, schema: Schema) -> None:
        others = [tensor.name for tensor in schema.tensors if tensor.role is not Role.SHARED]
        if others:
            raise ValueError(
                f"every tensor that travels must be shared, but {others} are not; "
                "choose the method that made them so"
            )

    def parameters_for(self, client_name: str) -> Tensor | None:
        """Return None: a client gets the shared parameters and nothing else."""
        return None

    def begin(self, terms: RoundTerms) -> None:
        """Do nothing: nothing will be taken."""

    def take(self, client_name: str, generated_update: Tensor, example_count: int) -> None:
        """Raise ValueError: no client has generated tensors."""
        raise ValueError("this method has no generated tensors, got an update of some")

    def sensitivity(self, slot_count: int, adjacency: Adjacency) -> None:
        """Return None: nothing is learnt from a round."""

    def close(self, add_noise: AddNoise | None = None) -> None:
        """Do nothing: nothing was taken."""

    def grow(self, generated: Schema, initial: Tensor, seed: int) -> None:
        """Do nothing: nothing is generated for a layer."""

    def forget(self, client_name: str) -> None:
        """Do nothing: nothing is kept of a client."""

    def state(self) -> Mapping[str, Tensor]:
        """Return nothing: nothing is kept between rounds."""
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take up nothing; ValueError if there is something."""
        if state:
            raise ValueError(f"this method keeps no state, got {sorted(state)}")
