"""What the coordinator of masked sums sees of canaries: noised sums, as it unmasks them.

Just as many devices add their share of the noise as the guarantee believes in, and every canary is
one of them: in or out by its coin, it draws its share. An observer who knows all other messages
takes their weights out of the sum of weights, and scores what is left beside the sum of updates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edge_client.training.masked_update import masked_vector, weighed_message
from models.masked.layout import MaskedLayout
from privacy.clipping.by_layer import ClippedUpdate, clip_update
from privacy.masking.grid import add_share, from_grid
from privacy.noise.masked_settings import MaskedNoise
from privacy.noise.secure_gaussian import NoiseKeys, SystemKeys
from server.closing.summing import Contribution
from simulation.auditing.canaries import Canaries

_ROUNDS = 256
_STANDARD_ERRORS = 5.0


@dataclass(frozen=True)
class UnmaskingCoordinator:
    """The coordinator of masked sums, before it divides.

    Attributes:
        honest: Devices that add their share of the noise, canaries among them.
        keys: Keys of the devices' draws; only tests repeat them.
    """

    layout: MaskedLayout
    privacy: MaskedNoise
    canaries: Canaries
    honest: int
    keys: NoiseKeys = field(default_factory=SystemKeys)

    def publish(self, contributions: Sequence[Contribution]) -> Sequence[Tensor]:
        """Return one vector, whose product with a canary's direction is the canary's score."""
        sums, layout = self.sums(contributions), self.layout
        count = layout.schema.element_count
        seen = sums[:count].copy()
        if not self.canaries.opposes:
            # Opposite updates weigh the same, so that weights tell which one came in no way.
            told = {one.slot: self._message(one.update)[layout.weights] for one in contributions}
            of_all = sum(told.values(), np.zeros(len(layout.units)))
            for slot, direction in enumerate(self.canaries.directions):
                own = self._message(direction * self.canaries.update_norm)[layout.weights]
                left = sums[layout.weights] - of_all + told.get(slot, 0.0)
                seen += float(own @ left) * direction.double().numpy()
        return [torch.from_numpy(seen).float()]

    def sums(self, contributions: Sequence[Contribution]) -> NDArray[np.float64]:
        """Return the unmasked elements with noise of a round's sum, in clipping norms."""
        grid, sent = self.layout.grid, {one.slot: one.update for one in contributions}
        total = np.zeros(grid.element_count, np.int64)
        for slot in range(self.honest):
            total += self.vector(slot, sent.get(slot))
        return from_grid(total.astype(np.uint32), grid)

    def vector(self, slot: int, update: Tensor | None) -> NDArray[np.int64]:
        """Return what a device adds to the sum, check elements apart: its share, if no more."""
        label = f"canary {slot}"
        if update is None:
            share = np.zeros(self.layout.noised_count, np.int64)
            add_share(share, self.layout.grid, self.keys.draw(label))
            return share
        clipped = self._clipped(update)
        vector = masked_vector(
            self.layout, clipped, self.privacy, example_share=1.0, keys=self.keys, label=label
        )
        return vector[: self.layout.noised_count].astype(np.int64)

    def _message(self, update: Tensor) -> NDArray[np.float64]:
        return weighed_message(self.layout, self._clipped(update), self.privacy, 1.0)

    def _clipped(self, update: Tensor) -> ClippedUpdate:
        return clip_update(update, self.privacy, list(self.layout.schema.slices.values()))


def faults_of_masked_weights(coordinator: UnmaskingCoordinator) -> list[str]:
    """Return what contradicts the noise on the weights, from rounds in which nobody is."""
    layout = coordinator.layout
    told = [coordinator.sums(())[layout.weights] for _ in range(_ROUNDS)]
    measured = math.sqrt(float(np.mean(np.square(told)))) / layout.weight_entry
    claimed = layout.weights_noise_std
    if measured >= claimed * (1 - _STANDARD_ERRORS / math.sqrt(2 * np.size(told))):
        return []
    return [
        f"too little noise on the weights: {measured:.3g} clients, {claimed:.3g} are claimed; "
        "what is divided by them tells who came"
    ]
