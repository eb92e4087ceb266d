import hashlib
import math
import struct

import msgspec
import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from models.networks.flat_parameters import (
    LaidParameters,
    initial_parameters,
    load_parameters,
    parameters_sha256,
    read_parameters,
    read_update,
    trained_schema,
)
from models.networks.registry import build_network, image_network
from models.settings.character import CharLstmSettings, CharTransformerSettings
from models.settings.image import ConvNetSettings, VitSettings
from models.settings.model import (
    GruLmSettings,
    ModelSettings,
    TransformerLmSettings,
    WordModelSettings,
    schema_of,
)
from models.settings.seq2seq import Seq2SeqSettings
from models.settings.voice import TransformerTtsSettings
from models.vector.schema import Schema

WORD_FAMILIES: list[WordModelSettings] = [
    GruLmSettings(vocabulary_size=40, hidden_size=6),
    GruLmSettings(vocabulary_size=40, hidden_size=6, tied=False),
    TransformerLmSettings(
        vocabulary_size=40, model_size=8, head_count=2, feedforward_size=12, context_size=16
    ),
    TransformerLmSettings(
        vocabulary_size=40,
        model_size=8,
        head_count=2,
        feedforward_size=12,
        context_size=16,
        tied=False,
    ),
]
NORMED = ConvNetSettings(
    class_count=3, image_size=16, kernel_counts=(2, 3), hidden_sizes=(6, 5), batch_norm=True
)
VOICE = TransformerTtsSettings(
    hidden_size=8,
    head_count=2,
    layer_count=2,
    feedforward_size=6,
    reduction_factor=2,
    embedding_size=5,
    text_channels=4,
    mel_prenet_size=3,
    postnet_channels=7,
    postnet_layer_count=3,
)
FAMILIES: list[ModelSettings] = [
    *WORD_FAMILIES,
    VitSettings(
        class_count=3, image_size=8, model_size=6, head_count=2, head_size=5, layer_count=2
    ),
    ConvNetSettings(class_count=3, image_size=16, kernel_counts=(2, 3), hidden_sizes=(6, 5)),
    NORMED,
    CharLstmSettings(hidden_size=5, layer_count=3),
    CharTransformerSettings(model_size=6, head_count=2, head_size=5, feedforward_size=7),
    Seq2SeqSettings(symbol_count=9, model_size=8, head_count=2, feedforward_size=6),
    VOICE,
    msgspec.structs.replace(VOICE, norm="layer", speaker_size=3),
]


@pytest.mark.parametrize("settings", FAMILIES)
def test_a_schema_lists_the_state_dict_of_its_network(settings: ModelSettings) -> None:
    state = build_network(settings).state_dict()

    listed = [(spec.name, spec.shape) for spec in schema_of(settings).tensors]
    assert listed == [(name, tuple(tensor.shape)) for name, tensor in state.items()]


@pytest.mark.parametrize("settings", FAMILIES)
def test_a_network_is_built_of_zeros_and_nothing_is_drawn(settings: ModelSettings) -> None:
    before = torch.get_rng_state()

    network = build_network(settings)

    assert torch.equal(torch.get_rng_state(), before)
    for tensor in network.state_dict().values():
        assert not tensor.any()
    for parameter in network.parameters():
        assert parameter.requires_grad


@pytest.mark.parametrize("settings", FAMILIES)
def test_a_loaded_vector_is_read_back_as_it_was(settings: ModelSettings) -> None:
    schema = schema_of(settings)
    network = build_network(settings)
    flat = torch.arange(schema.element_count, dtype=torch.float32)

    load_parameters(network, schema, flat)

    assert torch.equal(read_parameters(network, schema), flat)
    first = schema.tensors[0]
    assert_close(network.state_dict()[first.name].flatten(), flat[: first.element_count])


@pytest.mark.parametrize("settings", FAMILIES)
def test_a_seed_decides_the_first_parameters_and_the_global_generator_does_not(
    settings: ModelSettings,
) -> None:
    torch.manual_seed(1)
    first = initial_parameters(settings, seed=5)
    torch.manual_seed(2)
    untouched = torch.get_rng_state()

    assert torch.equal(initial_parameters(settings, seed=5), first)
    assert torch.equal(torch.get_rng_state(), untouched)
    assert not torch.equal(initial_parameters(settings, seed=6), first)


@pytest.mark.parametrize("settings", WORD_FAMILIES)
def test_the_first_guess_is_nearly_uniform(settings: WordModelSettings) -> None:
    network = build_network(settings)
    load_parameters(network, schema_of(settings), initial_parameters(settings, seed=0))
    tokens = torch.arange(16).unsqueeze(0)

    with torch.no_grad():
        features, _ = network.features(tokens, None)
        logits = features[0] @ network.output_weight.t() + network.output_bias

    # A uniform guess over 40 words costs ln 40 = 3.69; a tied N(0, 1) matrix would cost far more.
    assert float(cross_entropy(logits, tokens[0] + 20)) == pytest.approx(math.log(40), abs=0.1)


def test_a_vector_of_another_length_or_type_is_refused() -> None:
    settings = FAMILIES[0]
    schema = schema_of(settings)
    network = build_network(settings)

    with pytest.raises(ValueError, match=rf"shape \({schema.element_count},\)"):
        load_parameters(network, schema, torch.zeros(3))
    with pytest.raises(ValueError, match="float64"):
        load_parameters(network, schema, torch.zeros(schema.element_count, dtype=torch.float64))


def test_a_network_without_a_tensor_of_the_schema_is_refused() -> None:
    tied, untied = FAMILIES[0], FAMILIES[1]

    with pytest.raises(ValueError, match=r"must have a tensor output\.weight"):
        read_parameters(build_network(tied), schema_of(untied))


def test_tensors_outside_the_schema_stay_as_they_are() -> None:
    network = build_network(WORD_FAMILIES[0])
    bias_only = Schema(schema_of(FAMILIES[0]).tensors[-1:])

    load_parameters(network, bias_only, torch.ones(40))

    assert bool((network.output_bias == 1).all())
    assert bool((network.output_weight == 0).all())


def test_the_digest_is_of_little_endian_float32() -> None:
    expected = hashlib.sha256(struct.pack("<3f", 1.0, -2.5, 0.1)).digest()

    assert parameters_sha256(torch.tensor([1.0, -2.5, 0.1])) == expected


def test_an_update_is_trained_minus_received() -> None:
    settings = GruLmSettings(vocabulary_size=5, hidden_size=2)
    schema = schema_of(settings)
    network = build_network(settings)
    trained = torch.arange(schema.element_count, dtype=torch.float32)
    load_parameters(network, schema, trained)

    update = read_update(network, schema, torch.full_like(trained, 3.0))

    assert torch.equal(update, trained - 3)


@pytest.mark.parametrize("settings", FAMILIES)
def test_a_network_laid_in_a_vector_changes_with_it_and_changes_it(settings: ModelSettings) -> None:
    schema = schema_of(settings)
    network = build_network(settings)
    flat = torch.zeros(schema.element_count)

    LaidParameters(network, schema).lay(flat)
    flat.copy_(torch.arange(schema.element_count))
    with torch.no_grad():
        for tensor in network.state_dict().values():
            tensor.mul_(2)

    assert torch.equal(flat, 2 * torch.arange(schema.element_count, dtype=torch.float32))
    assert torch.equal(read_parameters(network, schema), flat)


def test_a_vector_of_another_length_holds_no_network() -> None:
    settings = GruLmSettings(vocabulary_size=5, hidden_size=2)
    schema = schema_of(settings)

    with pytest.raises(ValueError, match="parameters must be float32 of shape"):
        LaidParameters(build_network(settings), schema).lay(torch.zeros(schema.element_count + 1))


def test_buffers_travel_and_are_not_trained() -> None:
    settings = NORMED
    schema = schema_of(settings)
    network = build_network(settings)

    trained = {spec.name for spec in trained_schema(network, schema).tensors}

    left = [spec.name for spec in schema.tensors if spec.name not in trained]
    statistics = ("running_mean", "running_var", "batch_count")
    assert left == [f"batch_norm{layer}.{name}" for layer in (1, 2, 3, 4) for name in statistics]


def test_training_a_network_laid_in_a_vector_counts_there() -> None:
    settings = NORMED
    schema = schema_of(settings)
    network = build_network(settings)
    flat = initial_parameters(settings, seed=0)
    LaidParameters(network, schema).lay(flat)

    image_network(network).train().features(torch.zeros(2, 16, 16, 3, dtype=torch.uint8))

    assert float(flat[schema.slices["batch_norm4.batch_count"]]) == 1
