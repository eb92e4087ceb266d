"""Describe every tensor of a model, so that both ends of the wire agree before a byte is read.

A schema is the ordered list of a model's tensors. Parameters travel and are aggregated as one flat
float32 vector in schema order; the schema says where each tensor lies in it. Its SHA-256 is
compared at check-in and is bound into every sealed message. No torch.
"""

import hashlib
import math
from enum import StrEnum
from functools import cached_property
from itertools import accumulate, pairwise

import msgspec

BYTES_PER_ELEMENT = 4


class Role(StrEnum):
    """The owner of a tensor: federation, hypernetwork, person, or the starting model."""

    SHARED = "shared"
    GENERATED = "generated"
    PERSONAL = "personal"
    FROZEN = "frozen"


RELEASED = (Role.SHARED, Role.FROZEN)
"""Roles of the tensors that a release holds."""

RECEIVED = (Role.SHARED, Role.GENERATED, Role.FROZEN)
"""Roles of the tensors that a client receives."""

SENT = (Role.SHARED, Role.GENERATED)
"""Roles of the tensors that a client sends: what is clipped, noised and aggregated."""


class TensorSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One named float32 tensor.

    Attributes:
        name: Name in the model's state dict, unique within a schema.
        shape: Extent of each axis; every extent is at least 1.
        layer: Layer the tensor belongs to; attention in ``grouping = "layer"`` weighs the tensors
            of one layer together.
        role: The tensor's owner.
    """

    name: str
    shape: tuple[int, ...]
    layer: str
    role: Role = Role.SHARED

    def __post_init__(self) -> None:
        if not self.shape or min(self.shape) < 1:
            raise ValueError(f"shape of {self.name} must have extents >= 1, got {self.shape}")

    @property
    def element_count(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)


class Schema(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """The tensors of a model, in the order in which they lie in the flat vector.

    Attributes:
        tensors: Tensor specifications with unique names; empty if nothing is shared or travels.
    """

    tensors: tuple[TensorSpec, ...]

    def __post_init__(self) -> None:
        names = [tensor.name for tensor in self.tensors]
        if len(set(names)) != len(names):
            repeated = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(f"tensor names must be unique, got {repeated} more than once")

    @cached_property
    def element_count(self) -> int:
        """Return the length of the flat vector."""
        return sum(tensor.element_count for tensor in self.tensors)

    @property
    def payload_bytes(self) -> int:
        """Return the size of the flat vector in bytes."""
        return self.element_count * BYTES_PER_ELEMENT

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Return where each tensor lies in the flat vector, by name."""
        edges = accumulate((tensor.element_count for tensor in self.tensors), initial=0)
        return {
            tensor.name: slice(*edge)
            for tensor, edge in zip(self.tensors, pairwise(edges), strict=True)
        }

    @cached_property
    def sha256(self) -> bytes:
        """Return the 32-byte digest that both ends compare."""
        return hashlib.sha256(msgspec.json.encode(self.tensors, order="deterministic")).digest()

    def with_roles(self, *roles: Role) -> "Schema":
        """Return the tensors of these roles, in the same order; there may be none."""
        return Schema(tuple(tensor for tensor in self.tensors if tensor.role in roles))
