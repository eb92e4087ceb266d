"""What graphs share whose weights go by the names of the model's tensors."""

from collections.abc import Collection

import onnx

from export.graphs.writer import Array, held_tensor
from models.vector.schema import Schema


class NamedWeights:
    """Read the weights of such a graph back, and name what it takes of a person."""

    def __init__(self, schema: Schema) -> None:
        """Take every tensor of the model."""
        self._shapes = {spec.name: spec.shape for spec in schema.tensors}

    def recover(
        self, model: onnx.ModelProto, *, personal: Collection[str] = ()
    ) -> dict[str, Array]:
        """Return the parameters that a graph of ``build`` computes with, by state-dict name.

        Raises:
            ExportError: If a tensor is missing or does not have the shape the settings imply.
        """
        held = {item.name: item for item in model.graph.initializer}
        return {
            name: held_tensor(held, name, shape)
            for name, shape in self._shapes.items()
            if name not in personal
        }
