"""The graphs of a voice and a vocoder against the networks, which know nothing of ONNX."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from numpy.testing import assert_allclose, assert_array_equal

from export.faces.family import ExportError, Precision
from export.faces.speech import DECODER_FILE, ENCODER_FILE, POSTNET_FILE, VOCODER_FILE
from export.graphs.writer import Array
from export.parity.checked_graph import build_graphs, flat, recover_tensors
from export.parity.speech import VOCODER_SHAPES, VOICE_SHAPES, check_vocoder, check_voice
from export.parity.words import ParityError
from export.runtime.word_graph import GraphError
from export.speaking.voice_graphs import VocoderRunner, VoiceGraphs
from models.listening.synthesis import synthesise
from models.networks.flat_parameters import load_parameters
from models.networks.registry import build_network, voice_network
from models.settings.model import schema_of
from models.settings.vocoder import VocoderSettings
from models.settings.voice import TransformerTtsSettings
from models.vector.codec import named_tensors
from tests.export.voices import VOCODER, voice_parameters
from tests.models.tiny_voice import ALIGNED, MEL, TINY

SHORT = replace(TINY, longest_text=40)
PROJECTIONS = (
    "speaker.vector",
    "encoder.1.attention.to_qkv.weight",
    "decoder.0.attention.to_qkv.weight",
    "decoder.1.cross_attention.to_q.weight",
    "decoder.1.cross_attention.to_k.weight",
)


def tensors_of(settings: TransformerTtsSettings) -> dict[str, Array]:
    return named_tensors(schema_of(settings), voice_parameters(settings))


@cache
def built(
    settings: TransformerTtsSettings,
    personal: tuple[str, ...] = (),
    precision: Precision = "float32",
) -> dict[str, bytes]:
    held = {name: one for name, one in tensors_of(settings).items() if name not in personal}
    return build_graphs(settings, held, personal=personal, precision=precision)


def check_stage(settings: TransformerTtsSettings) -> None:
    record = check_voice(
        VoiceGraphs(built(settings)), settings, voice_parameters(settings), tolerance=1e-4
    )

    assert record.shapes == VOICE_SHAPES
    assert record.largest_difference < 1e-5


@pytest.mark.parametrize("layer_count", [1, 6])
@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_the_first_and_the_last_stage_compute_what_torch_computes(
    layer_count: int, norm: Any
) -> None:
    check_stage(replace(SHORT, layer_count=layer_count, norm=norm))


def test_a_voice_with_an_aligner_computes_what_torch_computes() -> None:
    settings = replace(ALIGNED, longest_text=40)
    check_stage(settings)
    tensors = tensors_of(settings)

    recovered = recover_tensors(settings, built(settings))

    for name, tensor in tensors.items():
        assert_array_equal(recovered[name], tensor)


@pytest.mark.papers
@pytest.mark.parametrize("layer_count", [2, 3, 4, 5])
@pytest.mark.parametrize("norm", ["layer", "batch"])
@pytest.mark.parametrize("reduction_factor", [1, 3])
def test_every_stage_computes_what_torch_computes(
    layer_count: int, norm: Any, reduction_factor: int
) -> None:
    check_stage(
        replace(SHORT, layer_count=layer_count, norm=norm, reduction_factor=reduction_factor)
    )


@pytest.mark.parametrize("settings", [TINY, ALIGNED], ids=["attention", "aligner"])
def test_steps_taken_one_by_one_are_a_spoken_text(settings: TransformerTtsSettings) -> None:
    parameters = voice_parameters(settings, stop=-1.0)
    network = voice_network(build_network(settings))
    load_parameters(network, schema_of(settings), torch.from_numpy(parameters.copy()))
    symbols = torch.tensor([1, 20, 5, 13, 8, 6])
    expected = synthesise(network, symbols, longest_steps=6).mel
    graphs = VoiceGraphs(build_graphs(settings, named_tensors(schema_of(settings), parameters)))

    memory, past = graphs.read(symbols.numpy()[np.newaxis]), graphs.fresh_past()
    frame, nothing_dropped = np.zeros((1, 5), np.float32), np.ones((2, 1, 6), np.float32)
    made = []
    for _ in range(6):
        step = graphs.step(memory, past, frame, nothing_dropped)
        past, frame = step.past, step.frames[:, -1]
        made.append(step.frames)

    found = graphs.finish(np.concatenate(made, axis=1))[0]
    assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-4)


def test_a_persons_tensors_are_inputs_and_make_that_persons_voice() -> None:
    graphs = VoiceGraphs(built(SHORT, PROJECTIONS))
    own = {f"personal.{name}": tensors_of(SHORT)[name] for name in PROJECTIONS}

    record = check_voice(graphs.for_person(own), SHORT, voice_parameters(SHORT), tolerance=1e-4)

    assert record.largest_difference < 1e-5
    assert graphs.personal_shapes == {name: tensor.shape for name, tensor in own.items()}
    draws = np.random.default_rng(5)
    for name, tensor in own.items():
        another = draws.standard_normal(tensor.shape).astype(np.float32)
        others = graphs.for_person({**own, name: another})
        with pytest.raises(ParityError, match="must agree with torch"):
            check_voice(others, SHORT, voice_parameters(SHORT), tolerance=1e-4)
    with pytest.raises(GraphError, match="give a person's tensors"):
        graphs.read(np.array([[1, 2, 3]]))
    with pytest.raises(GraphError, match="too many or too few"):
        graphs.for_person({"personal.speaker.vector": own["personal.speaker.vector"]})


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_the_weights_can_be_read_back_bit_for_bit(norm: Any) -> None:
    settings = replace(SHORT, norm=norm)

    recovered = recover_tensors(settings, built(settings))

    expected = tensors_of(settings)
    assert recovered.keys() == expected.keys()
    for name, tensor in expected.items():
        assert_array_equal(recovered[name], tensor)


def test_8_bits_compute_nearly_the_same_with_a_quarter_of_the_matrices() -> None:
    settings = replace(SHORT, hidden_size=64, feedforward_size=128, longest_text=10)
    whole, small = built(settings), built(settings, (), "int8")
    record = check_voice(
        VoiceGraphs(small), settings, voice_parameters(settings), tolerance=float("inf")
    )

    assert 1e-4 < record.largest_difference < 0.2
    assert len(small[ENCODER_FILE]) < 0.6 * len(whole[ENCODER_FILE])
    assert len(small[POSTNET_FILE]) == len(whole[POSTNET_FILE])


def test_a_wrong_graph_does_not_agree() -> None:
    tensors = tensors_of(SHORT)
    draws = np.random.default_rng(5)
    for name in (
        "decoder_position.scale",
        "encoder.0.feedforward.to_out.bias",
        "decoder.1.cross_attention.to_q.weight",
        "decoder.0.cross_attention.to_v.weight",
        "postnet.convolutions.1.layer_norm.bias",
        "head.stop.bias",
    ):
        wrong = 0.1 * draws.standard_normal(tensors[name].shape).astype(np.float32)
        changed = {**tensors, name: tensors[name] + wrong}
        graphs = VoiceGraphs(build_graphs(SHORT, changed))
        with pytest.raises(ParityError, match=r"must agree with torch to 0\.0001"):
            check_voice(graphs, SHORT, voice_parameters(SHORT), tolerance=1e-4)


def test_more_characters_or_steps_than_there_are_places_are_refused() -> None:
    graphs = VoiceGraphs(built(TINY))  # 12 characters; 2 s of 32 frames, 2 a step: 32 steps
    with pytest.raises(GraphError, match="onnxruntime failed"):
        graphs.read(np.ones((1, 13), dtype=np.int64))
    memory, past = graphs.read(np.ones((1, 12), dtype=np.int64)), graphs.fresh_past()
    for _ in range(TINY.longest_steps):
        past = graphs.step(memory, past, np.zeros((1, 5), "f4"), np.ones((2, 1, 6), "f4")).past
    with pytest.raises(GraphError, match="onnxruntime failed"):
        graphs.step(memory, past, np.zeros((1, 5), "f4"), np.ones((2, 1, 6), "f4"))


def test_graphs_that_are_no_voices_are_refused() -> None:
    graphs = built(SHORT)

    with pytest.raises(GraphError, match=r"must take|must give"):
        VoiceGraphs({**graphs, DECODER_FILE: graphs[ENCODER_FILE]})
    with pytest.raises(GraphError, match="cannot be loaded"):
        VoiceGraphs({**graphs, POSTNET_FILE: b"no graph"})
    with pytest.raises(GraphError, match="a vocoder's graph must take log_mels"):
        VocoderRunner(graphs[POSTNET_FILE])
    with pytest.raises(ExportError, match="too many or too few"):
        build_graphs(replace(SHORT, layer_count=1), tensors_of(SHORT))


@pytest.mark.parametrize(
    "settings",
    [
        VOCODER,
        # A window that is shorter than its transform, and hops that do not divide it.
        replace(VOCODER, mel=replace(MEL, window_size=100, hop_size=40), segment_size=4000),
    ],
    ids=["halves", "uneven"],
)
def test_a_vocoder_sounds_as_torch_has_it(settings: VocoderSettings) -> None:
    parameters = voice_parameters(settings)
    files = build_graphs(settings, named_tensors(settings.schema(), parameters))
    graph = files[VOCODER_FILE]

    record = check_vocoder(VocoderRunner(graph), settings, parameters, tolerance=1e-4)

    assert record.shapes == VOCODER_SHAPES
    assert record.largest_difference < 2e-5
    assert_array_equal(flat(recover_tensors(settings, files), settings.schema()), parameters)
    with pytest.raises(ParityError, match="must agree with torch"):
        check_vocoder(VocoderRunner(graph), settings, parameters + 0.01, tolerance=1e-4)
