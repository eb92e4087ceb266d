"""Write an ONNX graph node by node, whatever the model: weights, constants and the usual layers.

Graphs are written, not traced from torch. A traced Transformer of two layers cost 3.5 to 6.8
seconds of processor time an export and had 114 nodes. A written one costs milliseconds, no example
can freeze one of its axes, and weights keep their names and layout, so that they are read back bit
for bit.

A weight lies in the graph under its state-dict name, or is an input of the graph if it is a
person's own: ``personal.`` and its name (`export.faces.words`). Under precision ``int8`` matrices
are rounded (`export.graphs.eight_bits`) and stored once as ``<name>.whole`` and ``<name>.scales``,
whether they multiply or are looked up, or both; personal tensors stay float32.

References:
    ONNX operators of opset 21, https://onnx.ai/onnx/operators; of onnxruntime, MatMulNBits, whose
        accuracy level 4 rounds activations to 8 bits too, and multiplies whole numbers.
"""

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from export.faces.family import ExportError, Precision
from export.faces.words import IR_VERSION, OPSET, PERSONAL
from export.graphs.eight_bits import BLOCK, ZERO_POINT, rounded

Array = NDArray[np.float32]
Shape = Sequence[int | str | None]

NORM_EPSILON = 1e-5
"""torch's, where a layer does not say otherwise."""

FASTEST = 4
"""Accuracy level of what ships: whole numbers of 8 bits."""

EXACT = 0
"""Accuracy level that computes in float32, to compare a graph with torch."""

_CONTRIBUTED = "com.microsoft"
_ROUNDED_PRODUCT = "MatMulNBits"
WHOLE, SCALES = ".whole", ".scales"


class GraphWriter:
    """The nodes of one graph, collected; a method that writes some returns the value's name."""

    def __init__(
        self,
        weights: Mapping[str, tuple[int, ...]],
        *,
        personal: Collection[str] = (),
        precision: Precision = "float32",
    ) -> None:
        """Begin an empty graph whose weights have these shapes, by name."""
        self._shapes = dict(weights)
        self._personal = frozenset(personal)
        self._precision = precision
        self._rounded: set[str] = set()
        self._prefix = ""
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def model(self, name: str, tensors: Mapping[str, Array], **metadata: str) -> onnx.ModelProto:
        """Return the checked graph with its weights.

        Args:
            tensors: Every weight that is not personal, by name, in its shape.
            metadata: Texts that a runtime reads beside the graph.

        Raises:
            ExportError: If a weight is missing, foreign, or of another shape.
        """
        own = [weight for weight in self._shapes if weight not in self._personal]
        check_tensors(tensors, {weight: self._shapes[weight] for weight in own})
        held = [item for weight in own for item in self._stored(weight, tensors[weight])]
        personal = [
            _info(PERSONAL + weight, self._shapes[weight], np.float32)
            for weight in self._shapes
            if weight in self._personal
        ]
        graph = helper.make_graph(
            self._nodes,
            name,
            inputs=[*self._inputs, *personal],
            outputs=self._outputs,
            initializer=[*held, *self._constants.values()],
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(*domain) for domain in self._domains()],
            ir_version=IR_VERSION,
            producer_name="sotto",
        )
        helper.set_model_props(model, metadata)
        onnx.checker.check_model(model, full_check=True)
        return model

    def body(self, prefix: str) -> Self:
        """Return a writer of a graph inside this one, whose weights and constants are this one's.

        ``prefix`` begins the names of its values, and of no others.
        """
        inner = copy.copy(self)
        inner._nodes, inner._inputs, inner._outputs = [], [], []
        inner._prefix = prefix
        return inner

    def inner_graph(self, name: str) -> onnx.GraphProto:
        """Return what was written into a ``body``."""
        return helper.make_graph(self._nodes, name, inputs=self._inputs, outputs=self._outputs)

    def input(self, name: str, shape: Shape, dtype: type[np.generic] = np.float32) -> str:
        """Declare an input; a named axis is free."""
        self._inputs.append(_info(name, shape, dtype))
        return name

    def output(self, name: str, shape: Shape, dtype: type[np.generic] = np.float32) -> None:
        """Declare an output, which a node writes under this name."""
        self._outputs.append(_info(name, shape, dtype))

    def weight(self, name: str) -> str:
        """Return a weight's name in the graph; raise ExportError if there is no such weight."""
        if name not in self._shapes:
            raise ExportError(f"the model must have a tensor {name}, it has none")
        return PERSONAL + name if name in self._personal else name

    # Any: an attribute of a node is whatever its operator takes.
    def node(self, operator: str, *inputs: str, named: str | None = None, **attributes: Any) -> str:
        """Write a node with one output; its value is ``named`` so, or gets a name of its own."""
        return self.nodes(operator, *inputs, named=(named or self._fresh(operator),), **attributes)[
            0
        ]

    def nodes(
        self, operator: str, *inputs: str, named: Iterable[str] | int, **attributes: Any
    ) -> list[str]:
        """Write a node with several outputs: their names, or how many."""
        if isinstance(named, int):
            stem = self._fresh(operator)
            outputs = [f"{stem}.{number}" for number in range(named)]
        else:
            outputs = list(named)
        self._nodes.append(helper.make_node(operator, inputs, outputs, **attributes))
        return outputs

    def integers(self, *values: int) -> str:
        """Return the name of a constant list of integers."""
        return self._constant(np.array(values, dtype=np.int64))

    def integer(self, value: int) -> str:
        """Return the name of a constant integer without axes."""
        return self._constant(np.array(value, dtype=np.int64))

    def number(self, value: float) -> str:
        """Return the name of a constant float without axes."""
        return self._constant(np.array(value, dtype=np.float32))

    def table(self, name: str, values: NDArray[np.generic]) -> str:
        """Return the name of a constant that follows from the settings alone."""
        self._constants[name] = numpy_helper.from_array(values, name)
        return name

    def extent(self, value: str, axis: int) -> str:
        """Return the extent of one axis, as a list of one."""
        return self.node("Shape", value, start=axis, end=axis + 1)

    def reshaped(self, value: str, *shape: int) -> str:
        """Return the value in another shape; 0 keeps an extent, one -1 takes what is left."""
        return self.node("Reshape", value, self.integers(*shape))

    def added(self, left: str, right: str) -> str:
        """Return the sum."""
        return self.node("Add", left, right)

    def embedded(self, name: str, rows: str) -> str:
        """Return the rows of a matrix, shape ``(batch, time, width)``, for rows of two axes."""
        if not self._rounds(name):
            return self.node("Gather", self.weight(name), rows)
        width = self._shapes[name][1]
        whole = self.node("Cast", self.node("Gather", name + WHOLE, rows), to=TensorProto.FLOAT)
        signed = self.node("Sub", whole, self.number(float(ZERO_POINT)))
        scales = self.node("Unsqueeze", self.node("Gather", name + SCALES, rows), self.integers(3))
        padded = self.reshaped(self.node("Mul", signed, scales), 0, 0, -1)
        return self.node("Slice", padded, self.integers(0), self.integers(width), self.integers(2))

    def linear(self, value: str, name: str) -> str:
        """Apply a linear layer to the last axis; its bias is added if the model has one."""
        has_bias = f"{name}.bias" in self._shapes
        if self._rounds(f"{name}.weight"):
            return self._rounded_product(
                value, f"{name}.weight", f"{name}.bias" if has_bias else ""
            )
        turned = self.node("Transpose", self.weight(f"{name}.weight"), perm=[1, 0])
        product = self.node("MatMul", value, turned)
        if not has_bias:
            return product
        return self.added(product, self.weight(f"{name}.bias"))

    def scores(self, value: str, matrix: str, bias: str) -> str:
        """Return ``value @ matrix.T + bias`` of two axes; a tied matrix needs no turned copy."""
        if self._rounds(matrix):
            return self._rounded_product(value, matrix, bias)
        return self.node("Gemm", value, self.weight(matrix), self.weight(bias), transB=1)

    def norm(self, value: str, name: str, *, epsilon: float = NORM_EPSILON) -> str:
        """Apply a layer norm to the last axis."""
        scale, shift = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.node("LayerNormalization", value, scale, shift, axis=-1, epsilon=epsilon)

    def rounded_product(self, value: str, matrix: str, bias: str) -> str:
        """Return ``value @ matrix.T + bias``; ExportError unless the matrix is rounded."""
        if not self._rounds(matrix):
            raise ExportError(f"{matrix} must be rounded to be multiplied so")
        return self._rounded_product(value, matrix, bias)

    def _rounded_product(self, value: str, matrix: str, bias: str) -> str:
        rows, columns = self._shapes[matrix]
        operands = [value, matrix + WHOLE, matrix + SCALES]
        if bias:
            operands += ["", "", self.weight(bias)]
        return self.node(
            _ROUNDED_PRODUCT,
            *operands,
            domain=_CONTRIBUTED,
            N=rows,
            K=columns,
            bits=8,
            block_size=BLOCK,
            accuracy_level=FASTEST,
        )

    def _rounds(self, name: str) -> bool:
        """Return whether a matrix is rounded; from then on it is stored so."""
        if self._precision != "int8" or name in self._personal:
            return False
        self._rounded.add(name)
        return True

    def _stored(self, name: str, tensor: Array) -> list[onnx.TensorProto]:
        if name not in self._rounded:
            return [numpy_helper.from_array(tensor, name)]
        made = rounded(tensor)
        whole = (made.whole.astype(np.int16) + ZERO_POINT).astype(np.uint8)
        return [
            numpy_helper.from_array(whole, name + WHOLE),
            numpy_helper.from_array(made.scales, name + SCALES),
        ]

    def _domains(self) -> list[tuple[str, int]]:
        return [("", OPSET), *([(_CONTRIBUTED, 1)] if self._rounded else [])]

    def _constant(self, values: NDArray[np.generic]) -> str:
        """Return the name of a constant; equal ones are stored once."""
        kind = "number" if values.dtype == np.float32 else "integer"
        shape = "" if values.ndim == 0 else "s"
        name = f"{kind}{shape}:{','.join(map(str, values.reshape(-1)))}"
        return self.table(name, values)

    def _fresh(self, operator: str) -> str:
        return f"{self._prefix}{operator.lower()}_{len(self._nodes)}"


def check_tensors(tensors: Mapping[str, Array], shapes: Mapping[str, Shape]) -> None:
    """Raise ExportError if a weight is missing, foreign, or of another shape or dtype."""
    if tensors.keys() != shapes.keys():
        odd = sorted(tensors.keys() ^ shapes.keys())
        raise ExportError(f"the tensors must be the model's, got too many or too few: {odd[:3]}")
    for name, shape in shapes.items():
        found = tensors[name]
        if found.shape != tuple(shape) or found.dtype != np.float32:
            raise ExportError(
                f"{name} must be float32 of shape {tuple(shape)}, "
                f"got {found.dtype} of shape {found.shape}"
            )


def at_accuracy(model: onnx.ModelProto, level: int) -> onnx.ModelProto:
    """Return a copy of a graph whose rounded products are computed at a level: EXACT or FASTEST."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for node in _all_nodes(changed.graph):
        if node.op_type == _ROUNDED_PRODUCT:
            next(item for item in node.attribute if item.name == "accuracy_level").i = level
    return changed


def _all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _all_nodes(attribute.g)


def _info(name: str, shape: Shape, dtype: type[np.generic]) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, kind, list(shape))
