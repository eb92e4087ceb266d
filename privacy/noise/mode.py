"""The protocol of a noise mode: what is added where.

A mode is chosen in one place (``privacy.noise.registry.noise_mode``) and applied by the same calls
in simulation and deployment. Its promise stands with its settings (``guarantee``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import torch
from torch import Tensor

from privacy.accounting.events import Adjacency
from privacy.noise.secure_gaussian import NoiseKeys


class Arrival(StrEnum):
    """The state in which a client update reaches the coordinator."""

    CLIPPED = "clipped"
    """Clipped where the settings say so: the coordinator can clip again."""

    NOISED = "noised"
    """With the client's noise on top: a norm above the clip is no fault, and is left alone."""

    NOISED_WITH_CLEAN_NORMS = "noised-with-clean-norms"
    """As ``NOISED``, followed by the L2 norm of every tensor before noise."""

    MASKED = "masked"
    """As a masked vector, of which nothing shows but its sum with those of others."""


@dataclass(frozen=True)
class CalibratedRound:
    """The facts on which noise calibrated at the coordinator depends.

    Attributes:
        round_number: Round, from 1.
        sensitivity: Largest L2 distance of the aggregate between neighbours, in parameter units.
        keys: Keys of its draws.
        vector: Which of the round's vectors is noised; empty for the aggregate. Each has a key of
            its own.
        vector_count: Vectors of this round that are noised as one Gaussian mechanism: n of them
            get √n times the noise each, so that together they have the multiplier of one.
    """

    round_number: int
    sensitivity: float
    keys: NoiseKeys
    vector: str = ""
    vector_count: int = 1

    @property
    def label(self) -> str:
        """Return what its draw is called, unlike that of any other vector and round."""
        return f"round {self.round_number} {self.vector}".rstrip()


class NoiseMode(Protocol):
    """One mode of ``privacy.noise.settings``, at each of the three places where it may add noise.

    Unless a mode says otherwise it adds none, and updates arrive clipped. Updates, aggregates and
    parameters are flat float32, shape ``(elements,)``.
    """

    @property
    def adjacency(self) -> Adjacency | None:
        """Return the neighbours that the sensitivity is needed for; None without such noise."""
        return None

    @property
    def arrival(self) -> Arrival:
        """Return in which state updates reach the coordinator."""
        return Arrival.CLIPPED

    def at_client(
        self, update: Tensor, generator: torch.Generator | None, *, tensors: Sequence[slice]
    ) -> Tensor:
        """Return what the client sends for its clipped update, which is not changed.

        Uncalibrated noise is drawn from ``generator``; None draws from the operating system.
        ``tensors`` is where each tensor lies in it, in schema order. The shape is ``(elements,)``,
        or ``(elements + len(tensors),)`` where clean norms follow:
        ``models.plan.plan.upload_schema``.
        """
        return update

    def at_server(
        self,
        aggregate: Tensor,
        generator: torch.Generator,
        calibrated: CalibratedRound | None = None,
    ) -> Tensor:
        """Return the aggregate, which may change, with the noise that the server step size scales.

        ``calibrated`` is needed where ``adjacency`` is not None.
        """
        return aggregate

    def after_step(self, parameters: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return the new parameters with the noise that the step size does not scale.

        ``generator`` is as in ``at_client``.
        """
        return parameters
