"""Lay one client's model into the network that trains and scores all of them.

On a processor, received tensors lie in the memory of the update and personal ones in that of the
client's next state, so reading back copies nothing. An accelerator has its own layout for both.
"""

import torch
from torch import Tensor

from models.networks.flat_parameters import (
    LaidParameters,
    check_flat,
    load_parameters,
    read_parameters,
    read_update,
)
from models.networks.grown_layers import first_parameters
from models.networks.registry import build_network
from models.networks.role_vectors import part_of, put_part
from models.plan.plan import Plan, download_schema, plan_schema
from models.settings.layer_groups import group_of_round
from models.vector.schema import SENT, Role


class ClientNetwork:
    """The network of the plan's architecture, and whose model is in it.

    ``schema`` has every tensor with its role: those ``received`` come with the round, those
    ``sent`` are trained among them, and those ``personal`` stay; there may be none.
    """

    def __init__(self, plan: Plan, device: torch.device) -> None:
        """Build the plan's network.

        Raises:
            ValueError: If the model lacks a part that the plan's method needs.
        """
        self.schema = plan_schema(plan)
        self.received = download_schema(plan)
        self.sent = self.schema.with_roles(*SENT)
        self.personal = self.schema.with_roles(Role.PERSONAL)
        self.device = device
        self.network = build_network(plan.model, device)
        self._laid_received = LaidParameters(self.network, self.received)
        self._laid_personal = LaidParameters(self.network, self.personal)
        self._plan = plan
        self._first: Tensor | None = None
        self._memory: Tensor | None = None
        self._own = torch.empty(0)
        frozen = self.schema.with_roles(Role.FROZEN).slices
        for name, parameter in self.network.named_parameters():
            parameter.requires_grad_(name not in frozen)

    def train_layers_of(self, round_number: int) -> None:
        """Let gradients reach a round's layers alone, where the plan trains them in turn."""
        compression = self._plan.compression
        if compression is None or compression.layer_groups is None:
            return
        trained = group_of_round(self.sent, compression.layer_groups, round_number).slices
        for name, parameter in self.network.named_parameters():
            parameter.requires_grad_(name in trained)

    def load(self, parameters: Tensor, personal: Tensor | None, into: Tensor | None = None) -> None:
        """Set every tensor to one client's, from vectors that are not changed.

        Args:
            parameters: The received parameters, flat float32 in the layout of ``received``.
            personal: The client's own, in that of ``personal``. None before its first round: then
                they are the personal part of the model that the run starts from, so a device draws
                what a simulation draws, and all clients start alike.
            into: Memory that ``update`` may be written to, in the layout of ``sent``.

        Raises:
            ValueError: If a vector does not fit.
        """
        check_flat(parameters, self.received)
        self._own = (self._first_personal() if personal is None else personal).clone()
        if self.device.type != "cpu":
            self._memory = None
            load_parameters(self.network, self.received, parameters)
            load_parameters(self.network, self.personal, self._own)
            return
        # Memory for what is sent holds what is received where that is the same.
        fits = into is not None and len(into) == len(parameters)
        self._memory = into if into is not None and fits else torch.empty_like(parameters)
        self._laid_received.lay(self._memory)
        self._laid_personal.lay(self._own)
        self._memory.copy_(parameters)

    def loaded(self, parameters: Tensor) -> Tensor:
        """Return the whole model that was loaded, as long as it is not trained.

        It is flat float32 in the order of ``schema``, on the CPU: the ``parameters`` given to
        ``load`` where nothing is personal, else a copy that training leaves as it is.
        """
        if not self.personal.tensors:
            return parameters
        model = torch.empty(self.schema.element_count)
        put_part(model, self.schema, self.received, parameters)
        put_part(model, self.schema, self.personal, self._own)
        return model

    def update(self, parameters: Tensor) -> Tensor:
        """Return trained minus received ``parameters``, in the memory given to ``load`` if it fits.

        Nothing may be trained or scored afterwards before the next ``load``.
        """
        if self._memory is None:
            difference = read_update(self.network, self.received, parameters)
        else:
            difference = self._memory.sub_(parameters)
        if len(self.sent.tensors) == len(self.received.tensors):
            return difference
        return part_of(difference, self.received, self.sent)

    def trained_personal(self) -> Tensor:
        """Return the personal tensors as they now are, flat float32, on the CPU."""
        if self.device.type != "cpu":
            return read_parameters(self.network, self.personal)
        return self._own

    def _first_personal(self) -> Tensor:
        if self._first is None:
            self._first = torch.empty(0)
            if self.personal.tensors:
                self._first = part_of(first_parameters(self._plan), self.schema, self.personal)
        return self._first
