"""Build the ONNX graph of the GRU language model, node by node, and read its weights back.

The graph is made with ``onnx.helper`` and not traced from torch: no axis can be frozen by an
example, the matrix of a tied model is stored once, and a build takes a fraction of a second.

References:
    ONNX operator GRU, version 14 (the equations and the order of the gates).
    torch.nn.GRU (the same equations; with ``linear_before_reset`` the two agree).
"""

import math
from collections.abc import Mapping

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from export.exporter import ExportError
from export.graph_face import (
    BATCH,
    DISTRIBUTION,
    IR_VERSION,
    LOG_PROBABILITIES,
    NEXT,
    OPSET,
    TIME,
    TOKENS,
    TOP_K,
    WORDS,
)
from models.model_settings import GruLmSettings

Array = NDArray[np.float32]

_EMBEDDING = "embedding.weight"
_STATE = "state"
_TORCH_TO_ONNX = (1, 0, 2)  # torch stacks gates r, z, n; ONNX z, r, h. Its own inverse.


class GruGraph:
    """Turn the parameters of one GRU language model into ONNX and back."""

    def __init__(self, settings: GruLmSettings) -> None:
        self._settings = settings
        self._output = _EMBEDDING if settings.tied else "output.weight"

    def build(self, tensors: Mapping[str, Array]) -> onnx.ModelProto:
        """Return the checked graph (``export.graph_face`` says what it takes and gives).

        Its state is ``state``, float32, shape ``(1, batch, hidden)``. Dropout is off.

        Args:
            tensors: Parameters by state-dict name, in the shapes of the model's schema.
        """
        graph = helper.make_graph(
            self._nodes(),
            "gru_lm",
            inputs=self._inputs(),
            outputs=self._outputs(),
            initializer=self._initializers(tensors),
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="sotto",
        )
        onnx.checker.check_model(model, full_check=True)
        return model

    def recover(self, model: onnx.ModelProto) -> dict[str, Array]:
        """Return the parameters a graph of ``build`` holds, bit for bit, by state-dict name.

        Raises:
            ExportError: If a tensor is missing or does not have the shape the settings imply.
        """
        held = {item.name: item for item in model.graph.initializer}
        hidden, vocab = self._settings.hidden_size, self._settings.vocabulary_size
        weight_ih = _initializer(held, "gru.W", (1, 3 * hidden, hidden))[0]
        weight_hh = _initializer(held, "gru.R", (1, 3 * hidden, hidden))[0]
        bias_ih, bias_hh = _initializer(held, "gru.B", (1, 6 * hidden))[0].reshape(2, -1)
        tensors = {
            _EMBEDDING: _initializer(held, _EMBEDDING, (vocab, hidden)),
            "gru.weight_ih_l0": _reorder_gates(weight_ih),
            "gru.weight_hh_l0": _reorder_gates(weight_hh),
            "gru.bias_ih_l0": _reorder_gates(bias_ih),
            "gru.bias_hh_l0": _reorder_gates(bias_hh),
            self._output: _initializer(held, self._output, (vocab, hidden)),
        }
        return tensors | {"output.bias": _initializer(held, "output.bias", (vocab,))}

    def _nodes(self) -> list[onnx.NodeProto]:
        return [
            helper.make_node("Transpose", [TOKENS], ["tokens_by_time"], perm=[1, 0]),
            helper.make_node("Gather", [_EMBEDDING, "tokens_by_time"], ["embedded"]),
            helper.make_node(
                "GRU",
                ["embedded", "gru.W", "gru.R", "gru.B", "", _STATE],
                ["", NEXT + _STATE],
                hidden_size=self._settings.hidden_size,
                # torch multiplies by the reset gate after the recurrent bias is added.
                linear_before_reset=1,
            ),
            # The state after the last token is also the GRU's output there.
            helper.make_node("Squeeze", [NEXT + _STATE, "layer_axis"], ["last_output"]),
            # Gemm reads the embedding as it is stored; MatMul would need a transposed copy.
            helper.make_node(
                "Gemm", ["last_output", self._output, "output.bias"], ["logits"], transB=1
            ),
            helper.make_node("LogSoftmax", ["logits"], [DISTRIBUTION], axis=-1),
            helper.make_node("TopK", [DISTRIBUTION, TOP_K], [LOG_PROBABILITIES, WORDS], axis=-1),
        ]

    def _inputs(self) -> list[onnx.ValueInfoProto]:
        return [
            helper.make_tensor_value_info(TOKENS, TensorProto.INT64, [BATCH, TIME]),
            self._state_info(_STATE),
            helper.make_tensor_value_info(TOP_K, TensorProto.INT64, [1]),
        ]

    def _outputs(self) -> list[onnx.ValueInfoProto]:
        vocab = self._settings.vocabulary_size
        return [
            helper.make_tensor_value_info(WORDS, TensorProto.INT64, [BATCH, "ranked"]),
            helper.make_tensor_value_info(LOG_PROBABILITIES, TensorProto.FLOAT, [BATCH, "ranked"]),
            helper.make_tensor_value_info(DISTRIBUTION, TensorProto.FLOAT, [BATCH, vocab]),
            self._state_info(NEXT + _STATE),
        ]

    def _state_info(self, name: str) -> onnx.ValueInfoProto:
        shape: list[int | str | None] = [1, BATCH, self._settings.hidden_size]
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    def _initializers(self, tensors: Mapping[str, Array]) -> list[onnx.TensorProto]:
        biases = [_reorder_gates(tensors[f"gru.bias_{side}_l0"]) for side in ("ih", "hh")]
        arrays: dict[str, NDArray[np.float32] | NDArray[np.int64]] = {
            _EMBEDDING: tensors[_EMBEDDING],
            "gru.W": _reorder_gates(tensors["gru.weight_ih_l0"])[np.newaxis],
            "gru.R": _reorder_gates(tensors["gru.weight_hh_l0"])[np.newaxis],
            "gru.B": np.concatenate(biases)[np.newaxis],
            self._output: tensors[self._output],
            "output.bias": tensors["output.bias"],
            "layer_axis": np.zeros(1, dtype=np.int64),
        }
        return [numpy_helper.from_array(array, name) for name, array in arrays.items()]


def _reorder_gates(stacked: Array) -> Array:
    """Exchange torch's order of the gates for ONNX's, or back; axis 0 has extent 3 * hidden."""
    gates = stacked.reshape(3, -1, *stacked.shape[1:])[list(_TORCH_TO_ONNX)]
    return gates.reshape(stacked.shape)


def _initializer(held: Mapping[str, onnx.TensorProto], name: str, shape: tuple[int, ...]) -> Array:
    tensor = held.get(name)
    if tensor is None:
        raise ExportError(f"the graph must hold {name}, got {sorted(held)}")
    if tuple(tensor.dims) != shape or tensor.data_type != TensorProto.FLOAT:
        raise ExportError(f"{name} must be float32 of shape {shape}, got {tuple(tensor.dims)}")
    if len(tensor.raw_data) != 4 * math.prod(shape):
        raise ExportError(f"{name} must lie in the graph itself, whole")
    return np.asarray(numpy_helper.to_array(tensor), dtype=np.float32)
