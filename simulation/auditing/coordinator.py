"""The receivers of an audit's canaries, with the clipping, weighing and noise of a run."""

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
from server.aggregation.noised_sums import SumsForm
from server.aggregation.settings import AggregationSettings
from server.closing.close import Closed, Closing, close_round
from server.closing.summing import Contribution


@dataclass(frozen=True)
class ClosingCoordinator:
    """A coordinator that closes rounds by ``server.closing.close`` and publishes the parameters.

    Every round is the first of a run, with its own noise keys: in mode ``ftrl``, the first leaf of
    a new tree. The clip is not adaptive. ``slot_count`` is M, the places of a round.
    """

    schema: Schema
    aggregation: AggregationSettings
    privacy: PrivacySettings
    slot_count: int
    generator: torch.Generator = field(default_factory=torch.Generator)

    @property
    def form(self) -> SumsForm | None:
        """Return the layout of the sums that are noised; None where their mean is."""
        return self._closing().form

    def publish(self, contributions: Sequence[Contribution]) -> Sequence[Tensor]:
        """Return the one model of a round that began at zero."""
        return [self.close(contributions).parameters]

    def close(self, contributions: Sequence[Contribution]) -> Closed:
        """Return the outcome of a round that began at zero."""
        return close_round(
            torch.zeros(self.schema.element_count),
            (self._sent(contribution) for contribution in contributions),
            self._closing(),
        )

    def _closing(self) -> Closing:
        return Closing(
            schema=self.schema,
            aggregation=self.aggregation,
            privacy=self.privacy,
            slot_count=self.slot_count,
            generator=self.generator,
            round_number=1,
            noise_keys=fresh_keys(),
        )

    def _sent(self, contribution: Contribution) -> Contribution:
        """Return a contribution as a device sends it: unchanged if the coordinator can clip it."""
        arrival = noise_mode(self.privacy).arrival
        if arrival is Arrival.CLIPPED:
            return contribution
        update = noised_update(contribution.update, self.schema, self.privacy, self.generator)
        return Contribution(
            contribution.slot, update, contribution.example_count, contribution.client_name
        )


@dataclass(frozen=True)
class ListeningCoordinator:
    """An observer of what one device sends in mode ``local``: the coordinator itself."""

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
    """Return a copy of a flat float32 update ``(elements,)``, clipped and noised as on a device."""
    tensors = [schema.slices[tensor.name] for tensor in schema.tensors]
    clipped = clip_update(update, privacy, tensors)
    return noise_mode(privacy).at_client(clipped.values, generator, tensors=tensors)
