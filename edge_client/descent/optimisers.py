"""Build a device's optimiser, and carry its state from round to round where the plan keeps it.

Weights that a network scales at run time (`models.layers.he_scaling`) are held as they take effect
and stepped as they are drawn: gradients, their norm, the state and the step are in raw units. The
state is flat vectors in the layout of the parameters, by name, stored without pickle.

Steps are torch's functional ones, which its optimiser classes call too. A class would import
``torch._dynamo`` when it is made, 1.3 s of processor time in every fresh training process.

References:
    Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015, arXiv:1412.6980.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Self

import msgspec
import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from models.layers.he_scaling import runtime_scales
from models.networks.flat_parameters import check_flat, trained_schema
from models.plan.plan import TrainingSettings
from models.vector.schema import Schema

OptimiserState = Mapping[str, Tensor]
"""Flat float32 vectors, shape ``(elements,)``; Adam's ``step`` has a count a tensor."""

STEP = "step"
"""Name of Adam's counts of steps in a state, one a tensor."""

_MOMENTUM = "momentum_buffer"
_State = dict[str, Tensor]
# Parameters and gradients in one order, with the state of each; all are changed in place.
_Rule = Callable[[list[Tensor], list[Tensor], list[_State], TrainingSettings], None]


class Optimiser:
    """An optimiser of a network's parameters; it clips gradients by their L2 norm over all."""

    def __init__(self, network: nn.Module, schema: Schema, training: TrainingSettings) -> None:
        """Take the schema's parameters; others are not trained, and buffers have no state here."""
        present = dict(network.named_parameters())
        self._schema = trained_schema(network, schema)
        self._parameters = {spec.name: present[spec.name] for spec in self._schema.tensors}
        self._states: dict[str, _State] = {name: {} for name in self._parameters}
        scales = runtime_scales(network)
        self._scales = {name: scales.get(name, 1.0) for name in self._parameters}
        self._trainings = self._by_scale(training)
        self.gradient_clipping_norm = training.gradient_clipping_norm

    def fresh(self, training: TrainingSettings) -> Self:
        """Return an unstepped optimiser of the same parameters; only its step size may be new."""
        other = copy.copy(self)
        other._states = {name: {} for name in self._parameters}
        other._trainings = self._by_scale(training)
        return other

    def _by_scale(self, training: TrainingSettings) -> dict[float, TrainingSettings]:
        return {scale: _in_effective_units(training, scale) for scale in set(self._scales.values())}

    def step(self) -> None:
        """Move the parameters against their gradients, and forget the gradients."""
        for scale in self._trainings:
            gradients = [gradient for _, gradient, _ in self._group(scale)]
            if scale != 1 and gradients:
                torch._foreach_mul_(gradients, scale)
        if self.gradient_clipping_norm is not None:
            nn.utils.clip_grad_norm_(self._parameters.values(), self.gradient_clipping_norm)
        with torch.no_grad():
            for scale, training in self._trainings.items():
                self._move(scale, training)
        for parameter in self._parameters.values():
            parameter.grad = None

    def _move(self, scale: float, training: TrainingSettings) -> None:
        """Step the parameters of one scale."""
        group = self._group(scale)
        if group:
            moved, gradients, states = map(list, zip(*group, strict=True))
            OPTIMISERS[training.optimiser](moved, gradients, states, training)

    def _group(self, scale: float) -> list[tuple[Tensor, Tensor, _State]]:
        """Return the parameters of one scale that have a gradient, with it and their state."""
        return [
            (parameter, parameter.grad, self._states[name])
            for name, parameter in self._parameters.items()
            if self._scales[name] == scale and parameter.grad is not None
        ]

    def state(self) -> dict[str, Tensor]:
        """Return a copy of the state; empty before the first step, or where there is none."""
        states = list(self._states.values())
        flat: dict[str, Tensor] = {}
        for key in states[0]:
            flat[key] = torch.cat([state[key].detach().reshape(-1) for state in states]).cpu()
        return flat

    def load_state(self, state: OptimiserState) -> None:
        """Continue from a state that an optimiser of the same kind returned.

        Raises:
            ValueError: If a vector does not fit the parameters.
        """
        for key, flat in state.items():
            if key == STEP:
                _check_steps(flat, len(self._parameters))
            else:
                check_flat(flat, self._schema)
            for index, (name, parameter) in enumerate(self._parameters.items()):
                part = flat[index] if key == STEP else flat[self._schema.slices[name]]
                shape = () if key == STEP else parameter.shape
                copy = part.reshape(shape).to(parameter.device, copy=True)
                self._states[name][key] = copy


def _check_steps(steps: Tensor, count: int) -> None:
    if steps.shape != (count,):
        raise ValueError(f"step must have shape ({count},), got {tuple(steps.shape)}")


def _in_effective_units(training: TrainingSettings, scale: float) -> TrainingSettings:
    """Return the settings by which an effective weight moves as ``scale`` times the raw one."""
    if scale == 1:
        return training
    return msgspec.structs.replace(
        training,
        learning_rate=training.learning_rate * scale,
        # The decay of the raw weight ŵ/s, in steps that are s times as long.
        weight_decay=training.weight_decay / scale,
    )


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
            state[STEP] = torch.zeros((), device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
    adam(
        parameters,
        gradients,
        [state["exp_avg"] for state in states],
        [state["exp_avg_sq"] for state in states],
        [],
        [state[STEP] for state in states],
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
