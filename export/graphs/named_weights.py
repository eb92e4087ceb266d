"""Read the weights of graphs back, by the names of the model's tensors."""

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from export.faces.family import ExportError
from export.graphs.eight_bits import BLOCK, ZERO_POINT, Rounded
from export.graphs.writer import SCALES, WHOLE, Array
from models.vector.schema import Schema


class NamedWeights:
    """The weights of a graph, read back, and the names of those that it takes of a person."""

    def __init__(self, schema: Schema) -> None:
        self._shapes = {spec.name: spec.shape for spec in schema.tensors}

    def recover(
        self, model: onnx.ModelProto, *, personal: Collection[str] = ()
    ) -> dict[str, Array]:
        """Return a graph's parameters; ExportError if one is missing or of another shape."""
        held = {item.name: item for item in model.graph.initializer}
        return {
            name: held_tensor(held, name, shape)
            for name, shape in self._shapes.items()
            if name not in personal
        }


def held_tensor(held: Mapping[str, onnx.TensorProto], name: str, shape: tuple[int, ...]) -> Array:
    """Return a weight that a graph holds: bit for bit, or what its rounded values stand for.

    Raise ExportError if it is missing, of another shape or dtype, or not in the graph itself.
    """
    if name + WHOLE not in held:
        return np.asarray(_initializer(held, name, shape, TensorProto.FLOAT), dtype=np.float32)
    blocks = -(-shape[1] // BLOCK)
    whole = _initializer(held, name + WHOLE, (shape[0], blocks, BLOCK), TensorProto.UINT8)
    scales = _initializer(held, name + SCALES, (shape[0], blocks), TensorProto.FLOAT)
    signed = (whole.astype(np.int16) - ZERO_POINT).astype(np.int8)
    return Rounded(signed, scales, shape[1]).matrix()


# Any: an array of the dtype asked for.
def _initializer(
    held: Mapping[str, onnx.TensorProto], name: str, shape: tuple[int, ...], dtype: int
) -> NDArray[Any]:
    tensor = held.get(name)
    if tensor is None:
        raise ExportError(f"the graph must hold {name}, got {sorted(held)}")
    expected = helper.tensor_dtype_to_np_dtype(dtype)
    if tuple(tensor.dims) != shape or tensor.data_type != dtype:
        raise ExportError(f"{name} must be {expected} of shape {shape}, got {tuple(tensor.dims)}")
    if len(tensor.raw_data) != expected.itemsize * math.prod(shape):
        raise ExportError(f"{name} must lie in the graph itself, whole")
    array: NDArray[Any] = numpy_helper.to_array(tensor)
    return array
