"""Modes ``local`` and ``central``: one Gaussian draw, scaled to what one person can move.

References:
    McMahan et al., "Learning Differentially Private Recurrent Language Models", ICLR 2018,
        arXiv:1710.06963 (``central``).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from privacy.accounting.events import Adjacency
from privacy.noise.calibrated_settings import CentralNoise, LocalNoise
from privacy.noise.mode import Arrival, CalibratedRound, NoiseMode
from privacy.noise.secure_gaussian import Draw, NoiseKeys, SystemKeys, add_gaussian, calibrate


@dataclass(frozen=True)
class LocalGaussian(NoiseMode):
    """Noise of each device on its own update.

    The guarantee covers any two data sets of one person against everybody who sees what the device
    sends, the coordinator included: two clipped updates lie at most 2C apart, so the noise is z
    times 2C. No sampling is assumed. A test may repeat ``keys``.
    """

    settings: LocalNoise
    keys: NoiseKeys = field(default_factory=SystemKeys)

    arrival = Arrival.NOISED

    def at_client(
        self, update: Tensor, generator: torch.Generator | None, *, tensors: Sequence[slice]
    ) -> Tensor:
        """Return a noised copy of the whole update; the generator is not asked."""
        calibration = calibrate(
            noise_multiplier=self.settings.noise_multiplier,
            sensitivity=2 * self.settings.clipping_norm,
            element_count=update.numel(),
        )
        return add_gaussian(update.clone(), calibration, [Draw(self.keys.draw("update"))])


@dataclass(frozen=True)
class CentralGaussian(NoiseMode):
    """The coordinator's noise on the aggregate, once a round, after the sum.

    The guarantee covers whoever reads released models, not the coordinator. Neighbours differ in
    one person's updates, all of them zeros in one of two worlds (or any others, for
    ``replace-one``), over a fixed number of slots. Amplification is the accountant's business and
    needs cohorts of secret coin flips; the noise is the same without.
    """

    settings: CentralNoise

    @property
    def adjacency(self) -> Adjacency | None:
        """Return the neighbouring relation that the sensitivity is asked for."""
        return self.settings.adjacency

    def at_server(
        self,
        aggregate: Tensor,
        generator: torch.Generator,
        calibrated: CalibratedRound | None = None,
    ) -> Tensor:
        """Add the round's one draw, in place; ValueError without the round's sensitivity."""
        if calibrated is None:
            raise ValueError("mode central needs the round's sensitivity, got none")
        calibration = calibrate(
            noise_multiplier=self.settings.aggregate_noise_multiplier
            * math.sqrt(calibrated.vector_count),
            sensitivity=calibrated.sensitivity,
            element_count=aggregate.numel(),
        )
        key = calibrated.keys.draw(calibrated.label)
        return add_gaussian(aggregate, calibration, [Draw(key)])
