"""Build a device's optimiser, and carry its state from round to round where the plan keeps it.

The state is flat vectors in the layout of the parameters, by name, so that a device can store it
like parameters: no pickle.

Steps are torch's functional ones, which its optimiser classes call too. A class would import
``torch._dynamo`` when it is made, 1.3 s of processor time in every fresh training process.

References:
    Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015, arXiv:1412.6980.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from models.parameters import check_flat, trained_schema
from models.plan import TrainingSettings
from models.schema import Schema

OptimiserState = Mapping[str, Tensor]
"""Flat float32 vectors, shape ``(elements,)``; Adam's ``step`` is a count of shape ``()``."""

_STEP = "step"
_MOMENTUM = "momentum_buffer"
_State = dict[str, Tensor]
# Parameters and gradients in one order, with the state of each; all are changed in place.
_Rule = Callable[[list[Tensor], list[Tensor], list[_State], TrainingSettings], None]


class Optimiser:
    """Step a network's parameters, gradients clipped by their norm over all of them.

    Attributes:
        gradient_clipping_norm: Largest L2 norm of the gradient, or None.
    """

    def __init__(self, network: nn.Module, schema: Schema, training: TrainingSettings) -> None:
        """Take the network's parameters in the schema's order; others are not trained.

        Buffers of the schema change in the network's own forward pass, and have no state here.
        """
        present = dict(network.named_parameters())
        self._schema = trained_schema(network, schema)
        self._parameters = {spec.name: present[spec.name] for spec in self._schema.tensors}
        self._states: dict[str, _State] = {name: {} for name in self._parameters}
        self._training = training
        self.gradient_clipping_norm = training.gradient_clipping_norm

    def step(self) -> None:
        """Move the parameters against their gradients, and forget the gradients."""
        if self.gradient_clipping_norm is not None:
            nn.utils.clip_grad_norm_(self._parameters.values(), self.gradient_clipping_norm)
        with torch.no_grad():
            self._move()
        for parameter in self._parameters.values():
            parameter.grad = None

    def _move(self) -> None:
        moved: list[Tensor] = []
        gradients: list[Tensor] = []
        states: list[_State] = []
        for name, parameter in self._parameters.items():
            if parameter.grad is not None:
                moved.append(parameter)
                gradients.append(parameter.grad)
                states.append(self._states[name])
        OPTIMISERS[self._training.optimiser](moved, gradients, states, self._training)

    def state(self) -> dict[str, Tensor]:
        """Return a copy of the state; empty before the first step, or where there is none."""
        states = list(self._states.values())
        flat: dict[str, Tensor] = {}
        for key in states[0]:
            if key == _STEP:
                flat[key] = states[0][key].detach().cpu().clone()
            else:
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
                self._states[name][key] = copy


def _sgd(
    parameters: list[Tensor],
    gradients: list[Tensor],
    states: list[_State],
    training: TrainingSettings,
) -> None:
    """Step by SGD, with a momentum buffer where there is momentum."""
    buffers = [state.get(_MOMENTUM) for state in states]
    sgd(
        parameters,
        gradients,
        buffers,
        fused=True,
        lr=training.learning_rate,
        momentum=training.momentum,
        weight_decay=training.weight_decay,
        dampening=0.0,
        nesterov=False,
        maximize=False,
    )
    for state, buffer in zip(states, buffers, strict=True):
        if buffer is not None:
            state[_MOMENTUM] = buffer


def _adam(
    parameters: list[Tensor],
    gradients: list[Tensor],
    states: list[_State],
    training: TrainingSettings,
) -> None:
    """Step by Adam with its authors' β1, β2 and ε."""
    for parameter, state in zip(parameters, states, strict=True):
        if not state:
            state[_STEP] = torch.zeros((), device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
    adam(
        parameters,
        gradients,
        [state["exp_avg"] for state in states],
        [state["exp_avg_sq"] for state in states],
        [],
        [state[_STEP] for state in states],
        fused=True,
        lr=training.learning_rate,
        weight_decay=training.weight_decay,
        beta1=0.9,
        beta2=0.999,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
    )


OPTIMISERS: dict[str, _Rule] = {"sgd": _sgd, "adam": _adam}
