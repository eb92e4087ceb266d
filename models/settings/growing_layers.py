"""Name a family's stacks of layers, so that a model can grow by more of them. No torch.

A family that can grow declares ``growing`` in its settings. A layer is the tensors whose names
begin ``STACK.NUMBER.``, with the highest number on top; all other tensors exist from the first
round.

References:
    [FedDT-TTS] arXiv:2107.08795, section 3.2: layers are added on top, under the last norm.
"""

import re
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar, runtime_checkable

import msgspec

from models.settings.growth import GrowthSettings, layer_count_of_stage


@dataclass(frozen=True)
class LayerStack:
    """The name of one stack.

    Attributes:
        name: Prefix of its tensors' names, before the layer's number.
        setting: Field of the family's settings that counts its layers.
    """

    name: str
    setting: str


@dataclass(frozen=True)
class GrowingLayers:
    """How a family's layers are named.

    Attributes:
        stacks: Stacks that grow together, to the same number of layers.
        residual_outputs: Linear layers inside a layer that write to the residual stream. With all
            of them zero a layer adds nothing.
        norms_first: Whether every norm stands before a sub-layer. A norm behind the residual
            changes the stream even if the layer adds nothing.
    """

    stacks: tuple[LayerStack, ...]
    residual_outputs: tuple[str, ...]
    norms_first: bool

    def layer_of(self, name: str) -> int | None:
        """Return the number of the layer that holds a tensor, from 0; None for other tensors."""
        found = re.match(
            rf"(?:{'|'.join(re.escape(stack.name) for stack in self.stacks)})\.(\d+)\.", name
        )
        return None if found is None else int(found[1])

    def writes_to_stream(self, name: str) -> bool:
        """Return whether a tensor is the weight or bias of one of ``residual_outputs``."""
        layer, _, entry = name.rpartition(".")
        return entry in ("weight", "bias") and any(
            layer.endswith(f".{output}") for output in self.residual_outputs
        )


@runtime_checkable
class Growing(Protocol):
    """Settings of a family that can grow."""

    growing: ClassVar[GrowingLayers]


Family = TypeVar("Family", bound=msgspec.Struct)


def growing_layers(model: msgspec.Struct) -> GrowingLayers:
    """Return how the layers of a family are named; raise ``ValueError`` if they cannot grow."""
    if isinstance(model, Growing):
        return model.growing
    raise ValueError(
        f'growth needs a model of residual layers, and family "{_family(model)}" has none: a new '
        "layer would replace what is below it; leave out growth, or choose a Transformer"
    )


def check_growth(model: msgspec.Struct, growth: GrowthSettings) -> None:
    """Raise ``ValueError`` if a whole model, as after the last stage, cannot grow as planned."""
    layers = growing_layers(model)
    for stack in layers.stacks:
        count = getattr(model, stack.setting)
        if count != growth.target_layer_count:
            raise ValueError(
                f"growth.target_layer_count must be model.{stack.setting} {count}, got "
                f"{growth.target_layer_count}: the last stage is the whole model"
            )
    if growth.start == "zero" and not layers.norms_first:
        raise ValueError(
            f'growth.start must be "random" for family "{_family(model)}", got "zero": its norms '
            "stand behind the residuals, and change what passes through a layer that adds nothing"
        )


def check_stage(model: msgspec.Struct, growth: GrowthSettings, stage: int) -> None:
    """Raise ``ValueError`` unless a model has exactly the layers of a stage."""
    expected = layer_count_of_stage(growth, stage)
    for stack in growing_layers(model).stacks:
        count = getattr(model, stack.setting)
        if count != expected:
            raise ValueError(
                f"model.{stack.setting} must be {expected} in growth_stage {stage}, got {count}"
            )


def check_stage_of(
    model: msgspec.Struct, growth: GrowthSettings | None, growth_stage: int | None
) -> None:
    """Raise ``ValueError`` unless there is neither growth nor stage, or both fit the model."""
    if (growth is None) != (growth_stage is None):
        raise ValueError(
            "growth and growth_stage belong together; "
            f"got growth {growth} and growth_stage {growth_stage}"
        )
    if growth is None or growth_stage is None:
        return
    check_growth(model_at_stage(model, growth, growth.stage_count), growth)
    check_stage(model, growth, growth_stage)


def model_at_stage(model: Family, growth: GrowthSettings, stage: int) -> Family:
    """Return the settings of a model, given in any stage, as they are in a stage in [1, c]."""
    count = layer_count_of_stage(growth, stage)
    stacks = growing_layers(model).stacks
    return msgspec.structs.replace(model, **{stack.setting: count for stack in stacks})


def _family(model: msgspec.Struct) -> str:
    return str(type(model).__struct_config__.tag)
