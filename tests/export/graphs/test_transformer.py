"""The graph against the network, which knows nothing of ONNX and keeps no cache."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from numpy.testing import assert_allclose, assert_array_equal

from export.faces.family import ExportError
from export.faces.personal_inputs import personal_inputs
from export.graphs.transformer import TransformerGraph
from export.graphs.writer import Array
from export.parity.words import SHAPES, check_parity
from export.runtime.word_graph import GraphError, NextWordGraph
from models.networks.flat_parameters import load_parameters
from models.networks.registry import build_network
from models.settings.model import TransformerLmSettings, schema_of
from models.vector.codec import named_tensors
from tests.export.conftest import random_parameters

TIED = TransformerLmSettings(
    vocabulary_size=11,
    model_size=6,
    head_count=2,
    layer_count=2,
    feedforward_size=8,
    context_size=40,
)
UNTIED = replace(TIED, tied=False, head_count=3, layer_count=1)
PROJECTIONS = tuple(f"blocks.{block}.attention.to_qkv.weight" for block in (0, 1))


def tensors_of(model_settings: TransformerLmSettings) -> dict[str, Array]:
    return named_tensors(schema_of(model_settings), random_parameters(model_settings))


@cache
def built(model_settings: TransformerLmSettings, personal: tuple[str, ...] = ()) -> bytes:
    tensors = tensors_of(model_settings)
    held = {name: tensor for name, tensor in tensors.items() if name not in personal}
    model = TransformerGraph(model_settings).build(held, personal=personal)
    encoded: bytes = model.SerializeToString()
    return encoded


@cache
def graph_of(model_settings: TransformerLmSettings) -> NextWordGraph:
    return NextWordGraph(built(model_settings))


def torch_distributions(model_settings: TransformerLmSettings, tokens: np.ndarray) -> np.ndarray:
    """Return the distribution after every token, read at once."""
    network = build_network(model_settings).eval()
    parameters = torch.from_numpy(random_parameters(model_settings))
    load_parameters(network, schema_of(model_settings), parameters)
    with torch.inference_mode():
        features, _ = network.features(torch.from_numpy(tokens), None)
        logits = features @ network.output_weight.T + network.output_bias
        found: np.ndarray = torch.log_softmax(logits, -1).numpy()
    return found


@settings(deadline=None)
@given(
    model_settings=st.sampled_from([TIED, UNTIED]),
    batch=st.integers(1, 5),
    pieces=st.lists(st.integers(1, 10), min_size=1, max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_text_read_in_any_pieces_gives_what_torch_gives_of_the_whole(
    model_settings: TransformerLmSettings, batch: int, pieces: list[int], seed: int
) -> None:
    tokens = np.random.default_rng(seed).integers(0, 11, (batch, sum(pieces)))
    expected = torch_distributions(model_settings, tokens)
    graph = graph_of(model_settings)
    state = graph.fresh_state(batch)
    read = 0

    for piece in pieces:
        found = graph.step(tokens[:, read : read + piece], state, k=3)
        state, read = found.state, read + piece

        assert_allclose(found.distribution, expected[:, read - 1], atol=1e-5)
        assert_array_equal(found.words, np.argsort(-expected[:, read - 1], axis=1)[:, :3])


def test_five_exports_in_one_process_freeze_no_axis() -> None:
    for seed in range(5):
        model_settings = replace(TIED, layer_count=1 + seed, vocabulary_size=11 + seed)
        parameters = random_parameters(model_settings, seed)
        tensors = named_tensors(schema_of(model_settings), parameters)
        graph = NextWordGraph(TransformerGraph(model_settings).build(tensors).SerializeToString())

        record = check_parity(graph, model_settings, parameters)

        assert record.shapes == SHAPES


def test_a_persons_tensors_are_inputs_and_make_that_persons_model() -> None:
    graph = NextWordGraph(built(TIED, PROJECTIONS))
    own = {name: tensors_of(TIED)[name] for name in PROJECTIONS}
    tokens = np.array([[1, 5, 2, 8]])

    ours = graph.for_person(personal_inputs(TIED, own))
    nobodys = graph.for_person({f"personal.{name}": 0 * own[name] for name in own})

    expected = torch_distributions(TIED, tokens)[:, -1]
    assert graph.personal_shapes == {f"personal.{name}": (18, 6) for name in PROJECTIONS}
    found = ours.step(tokens, ours.fresh_state(), k=1).distribution
    assert_allclose(found, expected, atol=1e-5)
    other = nobodys.step(tokens, nobodys.fresh_state(), k=1).distribution
    assert np.abs(other - expected).max() > 1e-3


def test_a_person_without_a_tensor_or_with_one_of_another_shape_is_refused() -> None:
    graph = NextWordGraph(built(TIED, PROJECTIONS))
    own = {f"personal.{name}": tensors_of(TIED)[name] for name in PROJECTIONS}
    first = f"personal.{PROJECTIONS[0]}"

    with pytest.raises(GraphError, match="too many or too few"):
        graph.for_person({first: own[first]})
    with pytest.raises(GraphError, match="too many or too few"):
        graph.for_person({**own, "personal.norm.bias": np.zeros(6, dtype=np.float32)})
    with pytest.raises(GraphError, match=r"must be float32 of shape \(18, 6\), got float32"):
        graph.for_person({**own, first: own[first].T})
    with pytest.raises(GraphError, match=r"got float64 of shape \(18, 6\)"):
        graph.for_person({**own, first: own[first].astype(np.float64)})


@pytest.mark.parametrize("tokens", [41, 42, 100])
def test_more_tokens_than_the_context_holds_are_refused(tokens: int) -> None:
    graph = graph_of(TIED)
    half = graph.step(np.ones((1, 30), dtype=np.int64), graph.fresh_state(), k=1)

    assert graph.context_size == 40
    with pytest.raises(GraphError, match="onnxruntime failed"):
        graph.step(np.ones((1, tokens - 30), dtype=np.int64), half.state, k=1)


def test_the_matrix_of_a_tied_model_is_stored_once() -> None:
    # One float32 matrix of 1000 x 50 words is 200,000 bytes.
    model_settings = replace(TIED, vocabulary_size=1000, model_size=50, layer_count=1)

    size = len(built(model_settings))

    payload = schema_of(model_settings).payload_bytes
    assert payload < size < payload + 12_000


@pytest.mark.parametrize("model_settings", [TIED, UNTIED])
def test_the_weights_can_be_read_back_bit_for_bit(
    model_settings: TransformerLmSettings,
) -> None:
    tensors = tensors_of(model_settings)
    graph = TransformerGraph(model_settings)

    recovered = graph.recover(graph.build(tensors))

    assert recovered.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert_array_equal(recovered[name], tensor)


def test_dropout_is_no_part_of_the_graph() -> None:
    assert built(replace(TIED, dropout=0.5)) == built(TIED)


def test_tensors_of_another_model_are_not_built() -> None:
    tensors = tensors_of(TIED)

    with pytest.raises(ExportError, match=r"too many or too few: \['output.weight'\]"):
        TransformerGraph(replace(TIED, tied=False)).build(tensors)
    with pytest.raises(ExportError, match=r"embedding.weight must be float32 of shape \(12, 6\)"):
        TransformerGraph(replace(TIED, vocabulary_size=12)).build(tensors)
