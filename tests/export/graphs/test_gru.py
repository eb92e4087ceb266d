"""The graph against torch.nn.GRU, an implementation that knows nothing of ONNX."""

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from onnx import numpy_helper

from export.faces.family import ExportError
from export.faces.personal_inputs import personal_inputs
from export.graphs.gru import GruGraph
from export.graphs.writer import Array
from export.parity.words import check_parity
from export.runtime.word_graph import NextWordGraph
from models.settings.model import GruLmSettings, schema_of
from models.vector.codec import named_tensors
from tests.export.conftest import random_parameters

TIED = GruLmSettings(vocabulary_size=11, hidden_size=5)
UNTIED = GruLmSettings(vocabulary_size=11, hidden_size=5, tied=False)


def tensors_of(model_settings: GruLmSettings) -> dict[str, Array]:
    return named_tensors(schema_of(model_settings), random_parameters(model_settings))


def built(model_settings: GruLmSettings) -> bytes:
    encoded: bytes = GruGraph(model_settings).build(tensors_of(model_settings)).SerializeToString()
    return encoded


def torch_step(
    model_settings: GruLmSettings, tokens: np.ndarray, state: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    tensors = {name: torch.from_numpy(value) for name, value in tensors_of(model_settings).items()}
    hidden = model_settings.hidden_size
    gru = torch.nn.GRU(hidden, hidden, batch_first=True)
    gru.load_state_dict(
        {name.removeprefix("gru."): value for name, value in tensors.items() if "gru." in name}
    )
    output = tensors["embedding.weight" if model_settings.tied else "output.weight"]
    with torch.no_grad():
        features, last = gru(tensors["embedding.weight"][tokens], torch.from_numpy(state))
        logits = features[:, -1] @ output.T + tensors["output.bias"]
        return torch.log_softmax(logits, 1).numpy(), last.numpy()


GRAPHS = {TIED: NextWordGraph(built(TIED)), UNTIED: NextWordGraph(built(UNTIED))}


@settings(deadline=None)
@given(
    model_settings=st.sampled_from([TIED, UNTIED]),
    batch=st.integers(1, 6),
    time=st.integers(1, 20),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_batch_and_length_give_what_torch_gives(
    model_settings: GruLmSettings, batch: int, time: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    tokens = generator.integers(0, 11, (batch, time))
    state = generator.standard_normal((1, batch, 5)).astype(np.float32)

    found = GRAPHS[model_settings].step(tokens, {"state": state}, k=4)

    distribution, last = torch_step(model_settings, tokens, state)
    assert_allclose(found.distribution, distribution, atol=1e-5)
    assert_allclose(found.state["state"], last, atol=1e-5)
    assert_array_equal(found.words, np.argsort(-distribution, axis=1)[:, :4])
    assert_allclose(found.log_probabilities, -np.sort(-distribution, axis=1)[:, :4], atol=1e-5)


def test_a_text_read_in_pieces_gives_what_it_gives_whole() -> None:
    graph, tokens = GRAPHS[TIED], np.array([[3, 1, 4, 1, 5, 9, 2, 6]])

    whole = graph.step(tokens, graph.fresh_state(), k=1)
    state = graph.fresh_state()
    for piece in np.split(tokens, [1, 4, 6], axis=1):
        last = graph.step(piece, state, k=1)
        state = last.state

    assert_allclose(last.distribution, whole.distribution, atol=1e-6)


def test_the_matrix_of_a_tied_model_is_stored_once() -> None:
    # One float32 matrix of 1000 x 50 words is 200,000 bytes; the rest of the model is 65,400.
    model_settings = GruLmSettings(vocabulary_size=1000, hidden_size=50)

    size = len(built(model_settings))

    assert schema_of(model_settings).payload_bytes == 265_200
    assert 265_200 < size < 267_500


@pytest.mark.parametrize("model_settings", [TIED, UNTIED])
def test_the_weights_can_be_read_back_bit_for_bit(model_settings: GruLmSettings) -> None:
    tensors = tensors_of(model_settings)
    graph = GruGraph(model_settings)

    recovered = graph.recover(graph.build(tensors))

    assert recovered.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert_array_equal(recovered[name], tensor)


def test_equal_parameters_make_equal_bytes() -> None:
    assert built(TIED) == built(TIED)


def test_dropout_is_no_part_of_the_graph() -> None:
    with_dropout = GruLmSettings(vocabulary_size=11, hidden_size=5, dropout=0.5)

    assert built(with_dropout) == built(TIED)


def test_weights_of_another_model_are_not_read_back() -> None:
    model = GruGraph(TIED).build(tensors_of(TIED))

    with pytest.raises(ExportError, match=r"gru.W must be float32 of shape \(1, 18, 6\)"):
        GruGraph(GruLmSettings(vocabulary_size=11, hidden_size=6)).recover(model)
    with pytest.raises(ExportError, match=r"the graph must hold output.weight"):
        GruGraph(UNTIED).recover(model)


def test_weights_kept_outside_the_graph_are_not_fetched() -> None:
    model = GruGraph(TIED).build(tensors_of(TIED))
    matrix = next(item for item in model.graph.initializer if item.name == "embedding.weight")
    matrix.CopyFrom(
        onnx.TensorProto(
            name=matrix.name,
            dims=matrix.dims,
            data_type=matrix.data_type,
            data_location=onnx.TensorProto.EXTERNAL,
            external_data=[onnx.StringStringEntryProto(key="location", value="/etc/hostname")],
        )
    )

    with pytest.raises(ExportError, match=r"embedding.weight must lie in the graph itself"):
        GruGraph(TIED).recover(model)


def test_float_weights_only_are_read_back() -> None:
    model = GruGraph(TIED).build(tensors_of(TIED))
    bias = next(item for item in model.graph.initializer if item.name == "output.bias")
    bias.CopyFrom(numpy_helper.from_array(np.zeros(11, dtype=np.float64), "output.bias"))

    with pytest.raises(ExportError, match=r"output.bias must be float32"):
        GruGraph(TIED).recover(model)


def test_a_hundred_exports_in_one_process_freeze_no_axis() -> None:
    generator = np.random.default_rng(0)
    for number in range(100):
        model_settings = GruLmSettings(vocabulary_size=11 + number % 3, hidden_size=5)
        parameters = random_parameters(model_settings, seed=number)
        tensors = named_tensors(schema_of(model_settings), parameters)
        graph = NextWordGraph(GruGraph(model_settings).build(tensors).SerializeToString())
        batch, time = (int(extent) for extent in generator.integers(1, 9, 2))

        record = check_parity(graph, model_settings, parameters, shapes=((batch, time),))

        assert record.shapes == ((batch, time),)


def test_a_gru_that_is_a_persons_own_is_an_input_whole_or_not_at_all() -> None:
    tensors = tensors_of(TIED)
    own = [name for name in tensors if name.startswith("gru.")]
    shared = {name: tensor for name, tensor in tensors.items() if name not in own}
    exporter = GruGraph(TIED)
    tokens = np.array([[3, 1, 4]])

    graph = NextWordGraph(exporter.build(shared, personal=own).SerializeToString())
    ours = graph.for_person(personal_inputs(TIED, {name: tensors[name] for name in own}))

    assert set(graph.personal_shapes) == {"personal.gru.W", "personal.gru.R", "personal.gru.B"}
    expected, _ = torch_step(TIED, tokens, np.zeros((1, 1, 5), dtype=np.float32))
    assert_allclose(ours.step(tokens, ours.fresh_state(), k=1).distribution, expected, atol=1e-5)
    with pytest.raises(ExportError, match="must be personal together"):
        exporter.build(tensors, personal=["gru.bias_ih_l0"])
    with pytest.raises(ExportError, match="personal tensors must be the model's"):
        exporter.build(tensors, personal=["gru.W"])
