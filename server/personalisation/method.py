"""The protocol of a personalisation method's server half, which keeps the ``generated`` tensors."""

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from models.vector.schema import Schema
from privacy.accounting.events import Adjacency
from server.personalisation.round_terms import AddNoise, RoundTerms


class ServerHalf(Protocol):
    """A maker of each client's generated tensors that learns from their updates."""

    def parameters_for(self, client_name: str) -> Tensor | None:
        """Return a client's tensors, float32, ``(generated elements,)``; None if it has none."""
        ...

    def begin(self, terms: RoundTerms) -> None:
        """Start an attempt at a round; what an earlier attempt took is forgotten."""
        ...

    def take(self, client_name: str, generated_update: Tensor, example_count: int) -> None:
        """Take one client's update, flat float32, shape ``(generated elements,)``; in slot order.

        Raises:
            ValueError: If the update cannot be used.
        """
        ...

    def sensitivity(self, slot_count: int, adjacency: Adjacency) -> float | None:
        """Return how far one client can move what a round teaches, an L2 distance before noise.

        The round has M ``slot_count`` places, weighed equally. None if nothing is learnt from it.

        Raises:
            UnprovedSensitivityError: If the settings bound nobody's influence.
        """
        ...

    def close(self, add_noise: AddNoise | None = None) -> None:
        """Learn from all updates since ``begin``; called once a round, after the last.

        ``add_noise`` adds noise calibrated to ``sensitivity``; None if the mode adds none.

        Raises:
            ValueError: If nothing can be learnt; what was known stays as it was.
        """
        ...

    def grow(self, generated: Schema, initial: Tensor, seed: int) -> None:
        """Go on with a model that has got more layers; between two rounds only.

        ``generated`` holds the tensors so far among the new ones. ``initial`` is their start in one
        model for everyone, flat float32, shape ``(generated elements,)``; only the new ones matter.
        """
        ...

    def forget(self, client_name: str) -> None:
        """Drop what was learnt of one client, if anything was; what others taught stays."""
        ...

    def state(self) -> Mapping[str, Tensor]:
        """Return all that the next round needs, by name, in a fixed order; never changed later."""
        ...

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take up what ``state`` returned for the same settings and schema.

        Raises:
            ValueError: If a tensor is missing, unknown or of another shape or dtype.
        """
        ...
