"""Build a device's optimiser, and carry its state from round to round where the plan keeps it.

The state is flat vectors in the layout of the parameters, by name, so that a device can store it
like parameters: no pickle.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from models.parameters import check_flat
from models.plan import TrainingSettings
from models.schema import Schema

OptimiserState = Mapping[str, Tensor]
"""Flat float32 vectors, shape ``(elements,)``; Adam's ``step`` is a count of shape ``()``."""

_STEP = "step"


class Optimiser:
    """Step a network's parameters, gradients clipped by their norm over all of them.

    Attributes:
        gradient_clipping_norm: Largest L2 norm of the gradient, or None.
    """

    def __init__(self, network: nn.Module, schema: Schema, training: TrainingSettings) -> None:
        """Take the network's parameters in the schema's order; others are not trained."""
        present = dict(network.named_parameters())
        self._schema = schema
        self._parameters = {spec.name: present[spec.name] for spec in schema.tensors}
        self._optimiser = OPTIMISERS[training.optimiser](list(self._parameters.values()), training)
        self.gradient_clipping_norm = training.gradient_clipping_norm

    def step(self) -> None:
        """Move the parameters against their gradients, and forget the gradients."""
        if self.gradient_clipping_norm is not None:
            nn.utils.clip_grad_norm_(self._parameters.values(), self.gradient_clipping_norm)
        self._optimiser.step()
        self._optimiser.zero_grad()

    def state(self) -> dict[str, Tensor]:
        """Return a copy of the state; empty before the first step, or where there is none."""
        states = [self._optimiser.state[parameter] for parameter in self._parameters.values()]
        flat: dict[str, Tensor] = {}
        for key in states[0]:
            if key == _STEP:
                flat[key] = states[0][key].detach().cpu().clone()
            elif states[0][key] is not None:
                flat[key] = torch.cat([state[key].reshape(-1) for state in states]).cpu()
        return flat

    def load_state(self, state: OptimiserState) -> None:
        """Continue from a state that an optimiser of the same kind returned.

        Raises:
            ValueError: If a vector does not fit the parameters.
        """
        for key, flat in state.items():
            if key != _STEP:
                check_flat(flat, self._schema)
            for name, parameter in self._parameters.items():
                part = flat if key == _STEP else flat[self._schema.slices[name]]
                shape = () if key == _STEP else parameter.shape
                copy = part.reshape(shape).to(parameter.device, copy=True)
                self._optimiser.state[parameter][key] = copy


def _sgd(parameters: list[nn.Parameter], training: TrainingSettings) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        parameters,
        lr=training.learning_rate,
        momentum=training.momentum,
        weight_decay=training.weight_decay,
        fused=True,
    )


def _adam(parameters: list[nn.Parameter], training: TrainingSettings) -> torch.optim.Optimizer:
    return torch.optim.Adam(
        parameters, lr=training.learning_rate, weight_decay=training.weight_decay, fused=True
    )


OPTIMISERS: dict[str, Callable[[list[nn.Parameter], TrainingSettings], torch.optim.Optimizer]] = {
    "sgd": _sgd,
    "adam": _adam,
}
