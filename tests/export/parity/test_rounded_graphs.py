"""A graph of 8 bits computes with exactly the weights it is read back with."""

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from export.faces.personal_inputs import personal_inputs
from export.graphs.registry import exporter_for
from export.graphs.writer import EXACT, Array, at_accuracy
from export.parity.checked_graph import flat, make_graphs
from export.parity.words import SHAPES, TOLERANCE, ParityError, check_parity
from export.runtime.word_graph import NextWordGraph
from models.settings.model import GruLmSettings, TransformerLmSettings, schema_of
from models.vector.codec import named_tensors
from tests.export.conftest import random_parameters

GRU = GruLmSettings(vocabulary_size=30, hidden_size=70)
UNTIED_GRU = GruLmSettings(vocabulary_size=30, hidden_size=64, tied=False)
TRANSFORMER = TransformerLmSettings(
    vocabulary_size=30,
    model_size=72,
    head_count=2,
    layer_count=2,
    feedforward_size=80,
    context_size=40,
)
Settings = GruLmSettings | TransformerLmSettings
FAMILIES: list[Settings] = [GRU, UNTIED_GRU, TRANSFORMER]


def tensors_of(settings: Settings) -> dict[str, Array]:
    # A fifth of the usual size, as trained weights are: words stay likely enough to compare.
    return named_tensors(schema_of(settings), 0.2 * random_parameters(settings))


@pytest.mark.parametrize("settings", FAMILIES)
def test_a_rounded_graph_is_compared_exactly_and_as_it_ships(settings: Settings) -> None:
    made = make_graphs(settings, tensors_of(settings), precision="int8")

    assert made.parity.shapes == SHAPES
    assert made.parity.largest_difference < TOLERANCE / 5
    assert made.parity.largest_difference < made.parity.rounding_difference < 0.1


@pytest.mark.parametrize("settings", FAMILIES)
def test_rounding_moves_no_weight_by_more_than_half_a_step(settings: Settings) -> None:
    tensors = tensors_of(settings)
    exporter = exporter_for(settings)

    recovered = exporter.recover(exporter.build(tensors, precision="int8"))

    assert recovered.keys() == tensors.keys()
    for name, tensor in tensors.items():
        if tensor.ndim == 1 or name == "position.weight":
            assert_array_equal(recovered[name], tensor)
        else:
            step = np.abs(tensor).max() / 127
            assert 0 < np.abs(recovered[name] - tensor).max() <= 0.5001 * step


def test_the_matrix_of_a_tied_model_is_stored_once_in_8_bits() -> None:
    # 1000 x 128 words: 128,000 bytes and 1000 x 2 scales of 4 bytes. The GRU's two matrices are
    # 384 x 128 each: 98,304 bytes and 6,144 of scales; biases 4 x (768 + 1000).
    settings = GruLmSettings(vocabulary_size=1000, hidden_size=128)
    weights = 128_000 + 8_000 + 98_304 + 6_144 + 7_072

    model = exporter_for(settings).build(tensors_of(settings), precision="int8")

    assert weights < len(model.SerializeToString()) < weights + 6_000


def test_what_is_a_persons_own_is_not_rounded() -> None:
    tensors = tensors_of(GRU)
    own = {name: tensors[name] for name in tensors if name.startswith("gru.")}
    shared = {name: tensors[name] for name in tensors if name not in own}
    exporter = exporter_for(GRU)

    model = exporter.build(shared, personal=list(own), precision="int8")

    held = exporter.recover(model, personal=list(own))
    graph = NextWordGraph(at_accuracy(model, EXACT).SerializeToString())
    ours = graph.for_person(personal_inputs(GRU, own))
    parameters = flat({**own, **held}, schema_of(GRU))
    assert check_parity(ours, GRU, parameters).largest_difference < TOLERANCE / 5


def test_weights_that_were_changed_after_rounding_are_noticed() -> None:
    exporter = exporter_for(GRU)
    model = exporter.build(tensors_of(GRU), precision="int8")
    parameters = flat(exporter.recover(model), schema_of(GRU))
    whole = next(item for item in model.graph.initializer if item.name == "gru.weight_hh_l0.whole")
    changed = onnx.numpy_helper.to_array(whole).copy()
    changed[3] = 255 - changed[3]
    whole.CopyFrom(onnx.numpy_helper.from_array(changed, whole.name))

    with pytest.raises(ParityError, match="must agree with torch"):
        check_parity(NextWordGraph(at_accuracy(model, EXACT).SerializeToString()), GRU, parameters)


def test_a_text_read_in_pieces_gives_what_it_gives_whole() -> None:
    # Activations are rounded row by row, so that pieces and the whole differ by nothing at all.
    tokens = np.array([[3, 1, 4, 1, 5, 9, 2, 6]])
    for settings in FAMILIES:
        model = exporter_for(settings).build(tensors_of(settings), precision="int8")
        graph = NextWordGraph(model.SerializeToString())

        whole = graph.step(tokens, graph.fresh_state(), k=1)
        state = graph.fresh_state()
        for piece in np.split(tokens, [1, 4, 6], axis=1):
            last = graph.step(piece, state, k=1)
            state = last.state

        assert_allclose(last.distribution, whole.distribution, atol=1e-3)
