"""The filter as an ONNX graph: onnx, no torch."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from .settings import WordCountSettings

_OPSET, _IR_VERSION = 21, 10


class WordCountGraph:
    """counts -> Gemm -> ReLU -> Gemm -> log-softmax."""

    def build(
        self, settings: WordCountSettings, tensors: Mapping[str, NDArray[np.float32]]
    ) -> bytes:
        """Return the graph; its input and output are those of the network."""
        nodes = [
            helper.make_node(
                "Gemm", ["counts", "hidden.weight", "hidden.bias"], ["hidden"], transB=1
            ),
            helper.make_node("Relu", ["hidden"], ["active"]),
            helper.make_node(
                "Gemm", ["active", "output.weight", "output.bias"], ["scores"], transB=1
            ),
            helper.make_node("LogSoftmax", ["scores"], ["log_probabilities"], axis=1),
        ]
        graph = helper.make_graph(
            nodes,
            "spam",
            [_value("counts", settings.bucket_count)],
            [_value("log_probabilities", 2)],
            [numpy_helper.from_array(tensor, name) for name, tensor in tensors.items()],
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION
        )
        encoded: bytes = model.SerializeToString(deterministic=True)
        return encoded

    def examples(
        self, settings: WordCountSettings, count: int, draw: np.random.Generator
    ) -> Mapping[str, NDArray[Any]]:
        """Return drawn counts."""
        drawn = draw.integers(0, 4, (count, settings.bucket_count))
        return {"counts": drawn.astype(np.float32)}


GRAPH = WordCountGraph()


def _value(name: str, width: int) -> Any:  # onnx has no types.
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["messages", width])
