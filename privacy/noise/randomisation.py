"""Modes that promise nothing: no noise, and the two readings of the paper's randomisation.

Drawn from the plan's seed, it can be taken out by whoever has the plan, so a deployment draws it
from the operating system. Even so neither bounds what one client can add, and no size of β gives a
finite epsilon: this is called randomisation, never noise with a budget.

References:
    [FedAtt] Ji et al., "Learning Private Neural Language Modeling with Attentive Aggregation",
        IJCNN 2019, arXiv:1812.07108, Eq. 6.
    [fed-att] The authors' code, github.com/shaoxiongji/fed-att.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from privacy.clipping.clip import tensor_norms
from privacy.noise.mode import Arrival, NoiseMode
from privacy.noise.secure_gaussian import Calibration, Draw, SystemKeys, add_gaussian
from privacy.noise.settings import NoNoise, PaperNoise, PaperServerNoise

_FINE_BITS = 20  # The grid of the operating system's draws is a millionth of their spread.
_BLOCK = 1 << 18  # Elements drawn at a time: 1 MiB beside the model, in cache until added.


def add_normal(values: Tensor, noise_std: float, generator: torch.Generator | None) -> Tensor:
    """Add N(0, noise_std²), in parameter units, to contiguous float32, in place; 0 draws nothing.

    The generator is on the CPU, and so are the values without one: then the operating system's key
    draws, which nobody can repeat.
    """
    if noise_std == 0:
        return values
    if generator is None:
        step = 2.0 ** (math.floor(math.log2(noise_std)) - _FINE_BITS)
        key = SystemKeys().draw("randomisation")
        return add_gaussian(values, Calibration(noise_std, step), [Draw(key)])
    draw = torch.empty(min(_BLOCK, values.numel()))
    for block in torch.split(values, _BLOCK):
        drawn = draw[: block.numel()].normal_(generator=generator)
        block.add_(drawn.to(block.device), alpha=noise_std)
    return values


@dataclass(frozen=True)
class WithoutNoise(NoiseMode):
    """The mode that leaves everything as it is."""

    settings: NoNoise


@dataclass(frozen=True)
class PaperRandomisation(NoiseMode):
    """β·N(0, σ²) of each client on its update ([FedAtt] Eq. 6)."""

    settings: PaperNoise

    @property
    def arrival(self) -> Arrival:
        """Return whether clean norms follow the update."""
        clean = self.settings.score == "clean"
        return Arrival.NOISED_WITH_CLEAN_NORMS if clean else Arrival.NOISED

    def at_client(
        self, update: Tensor, generator: torch.Generator | None, *, tensors: Sequence[slice]
    ) -> Tensor:
        """Return a noised copy, with the clean norms behind it where attention scores those."""
        std = self.settings.randomisation_magnitude * self.settings.noise_std
        noised = add_normal(update.clone(), std, generator)
        if self.arrival is Arrival.NOISED:
            return noised
        return torch.cat([noised, torch.tensor(tensor_norms(update, tensors))])


@dataclass(frozen=True)
class PaperServerRandomisation(NoiseMode):
    """One draw of β·N(0, 1) on the new parameters, whatever the step size ([fed-att])."""

    settings: PaperServerNoise

    def after_step(self, parameters: Tensor, generator: torch.Generator | None) -> Tensor:
        """Add the one draw to the parameters, in place."""
        return add_normal(parameters, self.settings.randomisation_magnitude, generator)
