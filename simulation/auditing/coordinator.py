"""The receiver of an audit's canaries: the coordinator's own close, or one device in mode local.

Nothing here imitates a mechanism: clipping, weighing and noise are those of a run.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from models.vector.schema import Schema
from privacy.clipping.by_layer import clip_update
from privacy.noise.mode import Arrival
from privacy.noise.registry import noise_mode
from privacy.noise.secure_gaussian import KEY_BYTES
from privacy.noise.settings import PrivacySettings
from privacy.noise.tree import DerivedKeys
from server.aggregation.settings import AggregationSettings
from server.closing.close import Closing, close_round
from server.closing.summing import Contribution


@dataclass(frozen=True)
class ClosingCoordinator:
    """A coordinator that closes rounds by ``server.closing.close`` and publishes the parameters.

    Every round is the first of a run: it has noise keys of its own, so that in mode ``ftrl`` it
    is the first leaf of a new tree.

    Attributes:
        schema: Tensors of the model.
        privacy: Clip and noise; without adaptive clipping.
        slot_count: Places of a round, M.
    """

    schema: Schema
    aggregation: AggregationSettings
    privacy: PrivacySettings
    slot_count: int
    generator: torch.Generator = field(default_factory=torch.Generator)

    def publish(self, contributions: Sequence[Contribution]) -> Sequence[Tensor]:
        """Return the one model of a round that began at zero."""
        closed = close_round(
            torch.zeros(self.schema.element_count),
            (self._sent(contribution) for contribution in contributions),
            Closing(
                schema=self.schema,
                aggregation=self.aggregation,
                privacy=self.privacy,
                slot_count=self.slot_count,
                generator=self.generator,
                round_number=1,
                noise_keys=fresh_keys(),
            ),
        )
        return [closed.parameters]

    def _sent(self, contribution: Contribution) -> Contribution:
        """Return what a client sends that does not clip where the coordinator would."""
        arrival = noise_mode(self.privacy).arrival
        if arrival is Arrival.CLIPPED:
            return contribution
        update = noised_update(contribution.update, self.schema, self.privacy, self.generator)
        return Contribution(
            contribution.slot, update, contribution.example_count, contribution.client_name
        )


@dataclass(frozen=True)
class ListeningCoordinator:
    """An observer of what one device sends in mode ``local``: the coordinator itself.

    Attributes:
        schema: Tensors of the model.
    """

    schema: Schema
    privacy: PrivacySettings
    generator: torch.Generator = field(default_factory=torch.Generator)

    def publish(self, contributions: Sequence[Contribution]) -> Sequence[Tensor]:
        """Return the upload of the only contribution."""
        (contribution,) = contributions
        return [noised_update(contribution.update, self.schema, self.privacy, self.generator)]


def fresh_keys() -> DerivedKeys:
    """Return keys of noise that nobody else has, good for every mode."""
    return DerivedKeys(os.urandom(KEY_BYTES))


def noised_update(
    update: Tensor, schema: Schema, privacy: PrivacySettings, generator: torch.Generator
) -> Tensor:
    """Return what a device sends for an update: clipped, with the mode's client half.

    Args:
        update: Flat float32, shape ``(elements,)``; not changed.
    """
    tensors = [schema.slices[tensor.name] for tensor in schema.tensors]
    clipped = clip_update(update, privacy, tensors)
    return noise_mode(privacy).at_client(clipped.values, generator, tensors=tensors)
