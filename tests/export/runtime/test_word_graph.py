import sys

import numpy as np
import onnx
import pytest
from numpy.testing import assert_array_equal
from onnx import TensorProto, helper

from export.bundles.keyboard_bundle import Bundle
from export.runtime.word_graph import GraphError, NextWordGraph
from tests.export.conftest import WORDS


def test_the_graph_knows_its_vocabulary(graph: NextWordGraph) -> None:
    assert graph.vocabulary_size == len(WORDS)


def test_a_fresh_state_is_zero_for_every_text_of_the_batch(graph: NextWordGraph) -> None:
    state = graph.fresh_state(batch_size=4)

    assert_array_equal(state["state"], np.zeros((1, 4, 6)))


def test_log_probabilities_are_those_of_a_distribution(graph: NextWordGraph) -> None:
    found = graph.step(np.array([[1, 2], [3, 4]]), graph.fresh_state(2), k=len(WORDS))

    np.testing.assert_allclose(np.exp(found.distribution).sum(axis=1), 1, rtol=1e-5)
    assert_array_equal(np.sort(found.words, axis=1), [range(len(WORDS))] * 2)


@pytest.mark.parametrize(
    ("tokens", "k", "rule"),
    [
        (np.zeros((1, 0), dtype=np.int64), 1, r"shape \(batch, time\), got \(1, 0\)"),
        (np.zeros((0, 1), dtype=np.int64), 1, r"shape \(batch, time\), got \(0, 1\)"),
        (np.array([1]), 1, r"got \(1,\)"),
        (np.array([[-1, 2]]), 1, r"must be in \[0, 19\), got -1 to 2"),
        (np.array([[len(WORDS)]]), 1, r"got 19 to 19"),
        (np.array([[1]]), 0, r"k must be in \[1, 19\], got 0"),
        (np.array([[1]]), len(WORDS) + 1, r"k must be in \[1, 19\], got 20"),
    ],
)
def test_what_the_graph_cannot_read_is_refused(
    graph: NextWordGraph, tokens: np.ndarray, k: int, rule: str
) -> None:
    with pytest.raises(ValueError, match=rule):
        graph.step(tokens, graph.fresh_state(), k=k)


def test_a_state_of_another_batch_is_refused(graph: NextWordGraph) -> None:
    with pytest.raises(GraphError, match="onnxruntime failed"):
        graph.step(np.array([[1], [2]]), graph.fresh_state(3), k=1)


@pytest.mark.parametrize("kept", [0, 1, 10, 100, 0.5, -1])
def test_a_truncated_graph_is_refused(bundle: Bundle, kept: float) -> None:
    end = int(kept * len(bundle.graph)) if isinstance(kept, float) else kept

    with pytest.raises(GraphError, match="cannot be loaded"):
        NextWordGraph(bundle.graph[:end])


def test_a_graph_of_another_kind_is_refused() -> None:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    body = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "other", [value], [result])
    other = helper.make_model(body, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)

    with pytest.raises(GraphError, match="must take tokens and k"):
        NextWordGraph(other.SerializeToString())


def test_a_missing_onnxruntime_is_named_with_the_extra_that_has_it(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)

    with pytest.raises(GraphError, match=r"onnxruntime is missing; install sotto\[export\]"):
        NextWordGraph(bundle.graph)
