"""Move a network's parameters to and from the flat vector that travels.

One flat contiguous float32 vector, shape ``(elements,)``, holds every tensor of a schema in the
schema's order. A client update has the same layout. Buffers that a schema names, such as the
running statistics of a batch norm, travel like parameters: only the optimiser tells them apart.
Every function here raises ``ValueError`` if network, vector and schema do not fit.
"""

import hashlib
import sys
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from models.networks.registry import build_network
from models.settings.model import ModelSettings, schema_of
from models.vector.schema import Role, Schema


def initial_parameters(settings: ModelSettings, seed: int) -> Tensor:
    """Return a run's first parameters, flat, the same for the same settings and seed."""
    network = build_network(settings)
    network.initialise(torch.Generator().manual_seed(seed))
    return read_parameters(network, schema_of(settings))


def read_parameters(network: nn.Module, schema: Schema) -> Tensor:
    """Return a copy of the schema's tensors as one flat vector, ``(elements,)``, on the CPU."""
    tensors = _tensors(network, schema)
    if not tensors:
        return torch.empty(0)
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors.values()]).cpu()


@torch.no_grad()
def read_update(network: nn.Module, schema: Schema, received: Tensor) -> Tensor:
    """Return the client update: the network's parameters minus the received ones, on the CPU."""
    check_flat(received, schema)
    return read_parameters(network, schema).sub_(received)


class LaidParameters:
    """A network's tensors as views of one flat vector after another.

    Training the network then changes the vector, and nothing is copied to read it back.
    """

    def __init__(self, network: nn.Module, schema: Schema) -> None:
        """Find the schema's tensors in a network on the CPU; other tensors stay where they are."""
        self._schema = schema
        self._tensors = list(_tensors(network, schema).values())
        self._lengths = [spec.element_count for spec in schema.tensors]
        self._shapes = [spec.shape for spec in schema.tensors]

    @torch.no_grad()
    def lay(self, flat: Tensor) -> None:
        """Let the tensors lie in a vector from now on, which the network keeps."""
        check_flat(flat, self._schema)
        parts = torch.split(flat, self._lengths)
        for tensor, part, shape in zip(self._tensors, parts, self._shapes, strict=True):
            tensor.data = part.view(shape)


@torch.no_grad()
def load_parameters(network: nn.Module, schema: Schema, flat: Tensor) -> None:
    """Copy a flat vector into the network; tensors outside the schema stay as they are."""
    check_flat(flat, schema)
    for name, tensor in _tensors(network, schema).items():
        tensor.copy_(flat[schema.slices[name]].view(tensor.shape))


def parameters_sha256(flat: Tensor) -> bytes:
    """Return the 32-byte digest of a flat vector's little-endian float32 bytes."""
    values = flat.detach().cpu().contiguous().numpy()
    if sys.byteorder == "big":
        values = values.astype("<f4")
    return hashlib.sha256(values.data).digest()


def check_flat(flat: Tensor, schema: Schema) -> None:
    """Raise ``ValueError`` unless a vector is float32 of shape ``(elements,)``."""
    if flat.shape != (schema.element_count,) or flat.dtype is not torch.float32:
        raise ValueError(
            f"parameters must be float32 of shape ({schema.element_count},), "
            f"got {flat.dtype} of shape {tuple(flat.shape)}"
        )


def trained_schema(network: nn.Module, schema: Schema) -> Schema:
    """Return the tensors that a gradient moves, in the same order: no buffers, no frozen ones."""
    tensors = _tensors(network, schema)
    return Schema(
        tuple(
            spec
            for spec in schema.tensors
            if isinstance(tensors[spec.name], nn.Parameter) and spec.role is not Role.FROZEN
        )
    )


def _tensors(network: nn.Module, schema: Schema) -> Mapping[str, Tensor]:
    """Return the network's parameters and buffers that the schema names, in its order."""
    present = dict[str, Tensor](network.named_parameters()) | dict(network.named_buffers())
    for spec in schema.tensors:
        if spec.name not in present:
            raise ValueError(f"the network must have a tensor {spec.name}, it has none")
        if tuple(present[spec.name].shape) != spec.shape:
            raise ValueError(
                f"{spec.name} must have shape {spec.shape}, "
                f"the network has {tuple(present[spec.name].shape)}"
            )
    return {spec.name: present[spec.name] for spec in schema.tensors}
