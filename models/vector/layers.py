"""The elements of the flat vector that are weighed together. No torch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from models.vector.schema import Schema
from privacy.clipping.rule_settings import Grouping


@dataclass(frozen=True)
class Layer:
    """One unit of weighting: its tensors' indices, and their flat ranges with neighbours joined."""

    name: str
    tensors: tuple[int, ...]
    ranges: tuple[slice, ...]


def whole_model(schema: Schema) -> tuple[Layer, ...]:
    """Return every tensor as one layer, for rules that weigh a client once."""
    everything = slice(0, schema.element_count)
    return (Layer("all", tuple(range(len(schema.tensors))), (everything,)),)


def layers_of(schema: Schema, grouping: Grouping) -> tuple[Layer, ...]:
    """Return the layers in schema order; the tensors of a layer need not be neighbours."""
    members: dict[str, list[int]] = {}
    for index, tensor in enumerate(schema.tensors):
        name = tensor.name if grouping == "tensor" else tensor.layer
        members.setdefault(name, []).append(index)
    where = list(schema.slices.values())
    return tuple(
        Layer(name, tuple(tensors), _joined([where[index] for index in tensors]))
        for name, tensors in members.items()
    )


def layer_clips(layers: Sequence[Layer], tensor_clips: Sequence[float]) -> tuple[float, ...]:
    """Return the largest L2 norm of each layer whose tensors are clipped one by one."""
    return tuple(math.hypot(*(tensor_clips[index] for index in layer.tensors)) for layer in layers)


def _joined(ranges: Sequence[slice]) -> tuple[slice, ...]:
    joined = [ranges[0]]
    for later in ranges[1:]:
        if later.start == joined[-1].stop:
            joined[-1] = slice(joined[-1].start, later.stop)
        else:
            joined.append(later)
    return tuple(joined)
