import sys
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from export.bundles.keyboard_bundle import Bundle
from export.graphs.registry import exporter_for, parse_graph
from export.parity.words import SHAPES, TOLERANCE, ParityError, check_distributions, check_parity
from export.runtime.word_graph import NextWordGraph, Prediction, State
from models.settings.model import GruLmSettings, schema_of
from models.vector.codec import FlatVector, named_tensors
from tests.export.conftest import SETTINGS, random_parameters


def test_at_least_five_shapes_are_compared_and_no_axis_is_always_the_same() -> None:
    assert len(set(SHAPES)) >= 5
    assert len({batch for batch, _ in SHAPES}) >= 3
    assert len({time for _, time in SHAPES}) >= 5


@pytest.mark.parametrize("tied", [True, False])
def test_a_right_graph_agrees_far_within_the_tolerance(tied: bool) -> None:
    settings = GruLmSettings(vocabulary_size=50, hidden_size=24, tied=tied, dropout=0.5)
    parameters = random_parameters(settings, seed=1)
    model = exporter_for(settings).build(named_tensors(schema_of(settings), parameters))

    record = check_parity(NextWordGraph(model.SerializeToString()), settings, parameters)

    assert record.shapes == SHAPES
    assert record.largest_difference < TOLERANCE / 5


def change_one_weight(model: onnx.ModelProto) -> None:
    bias = next(item for item in model.graph.initializer if item.name == "output.bias")
    values = numpy_helper.to_array(bias).copy()
    values[5] += 0.01
    bias.CopyFrom(numpy_helper.from_array(values, bias.name))


def swap_two_gates(model: onnx.ModelProto) -> None:
    weight = next(item for item in model.graph.initializer if item.name == "gru.W")
    gates = np.split(numpy_helper.to_array(weight), 3, axis=1)
    swapped = np.concatenate([gates[1], gates[0], gates[2]], axis=1)
    weight.CopyFrom(numpy_helper.from_array(swapped, weight.name))


def reset_before_the_product(model: onnx.ModelProto) -> None:
    gru = next(node for node in model.graph.node if node.op_type == "GRU")
    next(item for item in gru.attribute if item.name == "linear_before_reset").i = 0


def forget_the_state(model: onnx.ModelProto) -> None:
    gru = next(node for node in model.graph.node if node.op_type == "GRU")
    gru.input[5] = ""


def rank_the_least_likely(model: onnx.ModelProto) -> None:
    rank = next(node for node in model.graph.node if node.op_type == "TopK")
    rank.attribute.append(onnx.helper.make_attribute("largest", 0))


def divide_by_zero(model: onnx.ModelProto) -> None:
    bias = next(item for item in model.graph.initializer if item.name == "output.bias")
    values = np.full(bias.dims[0], np.nan, dtype=np.float32)
    bias.CopyFrom(numpy_helper.from_array(values, bias.name))


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        (change_one_weight, "must agree with torch"),
        (swap_two_gates, "must agree with torch"),
        (reset_before_the_product, "must agree with torch"),
        (forget_the_state, "must agree with torch"),
        (rank_the_least_likely, "must be the likeliest"),
        (divide_by_zero, "must be the likeliest|must agree with torch"),
    ],
)
def test_a_wrong_graph_is_refused(
    bundle: Bundle, parameters: FlatVector, fault: Callable[[onnx.ModelProto], None], rule: str
) -> None:
    model = parse_graph(bundle.graph)
    fault(model)

    with pytest.raises(ParityError, match=rule):
        check_parity(NextWordGraph(model.SerializeToString()), SETTINGS, parameters)


# As noise that destroys a model leaves it: its log-probabilities are in the hundreds.
LOUD = GruLmSettings(vocabulary_size=50, hidden_size=24, tied=False)


def loud_parameters() -> FlatVector:
    parameters = random_parameters(LOUD, seed=1)
    for name in ("output.weight", "output.bias"):
        parameters[schema_of(LOUD).slices[name]] *= 300
    return parameters


def test_a_right_graph_agrees_to_what_its_own_numbers_can_hold() -> None:
    parameters = loud_parameters()
    model = exporter_for(LOUD).build(named_tensors(schema_of(LOUD), parameters))

    record = check_parity(NextWordGraph(model.SerializeToString()), LOUD, parameters)

    # One rounding of float32 is 1.2e-4 of a nat at 1000.
    assert TOLERANCE < record.largest_difference < 1e-2


@pytest.mark.parametrize(
    "fault", [change_one_weight, swap_two_gates, reset_before_the_product, forget_the_state]
)
def test_a_wrong_graph_of_large_numbers_is_refused(
    fault: Callable[[onnx.ModelProto], None],
) -> None:
    parameters = loud_parameters()
    model = exporter_for(LOUD).build(named_tensors(schema_of(LOUD), parameters))
    fault(model)

    with pytest.raises(ParityError, match="must agree with torch"):
        check_parity(NextWordGraph(model.SerializeToString()), LOUD, parameters)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_agrees_with_nothing(number: float) -> None:
    good, bad = (np.array([-1, last], dtype=np.float32) for last in (-2, number))

    for found, expected in ((good, bad), (bad, good), (bad, bad)):
        with pytest.raises(ParityError), np.errstate(invalid="ignore"):
            check_distributions(found, expected, 1e-4, "one place")


class FrozenGraph(NextWordGraph):
    """Read nine words whatever it is given, like a graph with a frozen time axis."""

    def step(self, tokens: np.ndarray, state: State, *, k: int) -> Prediction:
        return super().step(tokens[:, -9:], state, k=k)


def test_a_frozen_axis_is_noticed(bundle: Bundle, parameters: FlatVector) -> None:
    with pytest.raises(ParityError, match="batch 1 and time 9"):
        check_parity(FrozenGraph(bundle.graph), SETTINGS, parameters)


def test_without_torch_nothing_is_claimed(
    graph: NextWordGraph, parameters: FlatVector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)

    with pytest.raises(ParityError, match=r"torch is missing.*install sotto\[train\]"):
        check_parity(graph, SETTINGS, parameters)
