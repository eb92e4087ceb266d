"""A client's own state between rounds: its personal tensors, and what a method adds.

Where the plan feeds back what compressing its last update lost, that is kept too: it counts under
the same condition, that the update was acknowledged. A state is one flat vector in the layout of
``StateLayout``, without pickle. A file of another model, method or layout is refused before its
values are looked at. It never leaves the device.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import msgspec
import torch
from torch import Tensor

from models.networks.flat_parameters import check_flat
from models.vector.codec import CodecError, decode, encode
from models.vector.schema import SENT, Role, Schema, TensorSpec
from privacy.foundation.atomic_files import write_atomically

_NOTHING = Schema(())


class PersonalStateError(ValueError):
    """Raised when a kept state cannot be used; the text says why and what to do."""


@dataclass(frozen=True)
class PersonalState:
    """The tensors that one client keeps.

    Attributes:
        personal: The model's personal tensors, flat float32 in schema order.
        extras: The tensors that the method keeps beside them, by name: float32, own shapes.
        residual: The loss of compressing the last update, flat float32 as what is sent, or None.
    """

    personal: Tensor
    extras: Mapping[str, Tensor]
    residual: Tensor | None = None


@dataclass(frozen=True)
class StateLayout:
    """The layout of a client's state under one model and method; each part may be empty.

    ``residual``, the loss of compression, is laid out as what is sent.
    """

    personal: Schema
    extras: Schema
    residual: Schema = _NOTHING

    @classmethod
    def of(
        cls, schema: Schema, extras: Sequence[TensorSpec], *, keeps_residual: bool = False
    ) -> Self:
        """Return the layout for a model's tensors, with their roles, and a method's own."""
        own = (msgspec.structs.replace(spec, role=Role.PERSONAL) for spec in extras)
        sent = schema.with_roles(*SENT).tensors if keeps_residual else ()
        return cls(
            schema.with_roles(Role.PERSONAL),
            Schema(tuple(own)),
            Schema(tuple(msgspec.structs.replace(spec, name=_lost(spec.name)) for spec in sent)),
        )

    @cached_property
    def whole(self) -> Schema:
        """Return all of it, as it lies in a file."""
        return Schema((*self.personal.tensors, *self.extras.tensors, *self.residual.tensors))

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is kept."""
        return not self.whole.tensors


def write_state(
    path: Path, layout: StateLayout, state: PersonalState, *, flush: bool = True
) -> None:
    """Replace a client's state, durably and all at once; the folder of ``path`` must exist.

    Raises:
        CodecError: If the state does not fit the layout, or holds NaN or infinity.
        OSError: If the disk is full; the old file is untouched.
    """
    write_atomically(path, encode(layout.whole, flat_state(layout, state).numpy()), flush=flush)


def read_state(path: Path, layout: StateLayout) -> PersonalState | None:
    """Return a client's state, or None if it keeps none yet.

    Raises:
        PersonalStateError: If the file is damaged, or the model or the method has changed since.
    """
    try:
        payload = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        flat = torch.from_numpy(decode(layout.whole, payload).copy())
    except CodecError as error:
        raise PersonalStateError(
            f"{path} does not fit this model and method: {error}; remove it to start over"
        ) from None
    return state_of(layout, flat)


def flat_state(layout: StateLayout, state: PersonalState) -> Tensor:
    """Return a state as one flat vector, float32, shape ``(elements,)``.

    Raises:
        ValueError: If it does not fit the layout.
    """
    check_flat(state.personal, layout.personal)
    if set(state.extras) != set(layout.extras.slices):
        expected = sorted(layout.extras.slices)
        raise ValueError(f"extras must be {expected}, got {sorted(state.extras)}")
    for spec in layout.extras.tensors:
        shape = tuple(state.extras[spec.name].shape)
        if shape != spec.shape:
            raise ValueError(f"{spec.name} must have shape {spec.shape}, got {shape}")
    extras = (state.extras[spec.name].detach().reshape(-1) for spec in layout.extras.tensors)
    residual = torch.zeros(layout.residual.element_count)
    if state.residual is not None:
        check_flat(state.residual, layout.residual)
        residual = state.residual
    return torch.cat([state.personal, *extras, residual])


def state_of(layout: StateLayout, flat: Tensor) -> PersonalState:
    """Return the state that a flat vector holds; the state shares its memory.

    Raises:
        ValueError: If the vector does not fit the layout.
    """
    check_flat(flat, layout.whole)
    sizes = [part.element_count for part in (layout.personal, layout.extras, layout.residual)]
    personal, extras, residual = torch.split(flat, sizes)
    return PersonalState(
        personal=personal,
        extras={
            spec.name: extras[layout.extras.slices[spec.name]].view(spec.shape)
            for spec in layout.extras.tensors
        },
        residual=residual if layout.residual.tensors else None,
    )


def _lost(name: str) -> str:
    return f"lost of {name}"
