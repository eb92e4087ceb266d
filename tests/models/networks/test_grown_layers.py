"""A model that grows: what stays, what comes, and that nobody can tell from its predictions."""

import msgspec
import pytest
import torch
from torch import Tensor

from models.networks.flat_parameters import load_parameters
from models.networks.grown_layers import first_parameters, grow, whole_model
from models.networks.registry import (
    build_network,
    character_network,
    image_network,
    sequence_network,
    voice_network,
    word_network,
)
from models.plan.plan import Plan, plan_schema
from models.settings.character import CharTransformerSettings
from models.settings.growing_layers import growing_layers
from models.settings.image import VitSettings
from models.settings.model import ModelSettings, schema_of
from models.settings.personalisation import VanillaSettings
from models.settings.seq2seq import Seq2SeqSettings
from models.vector.schema import Role, Schema
from tests.models.growing import MODEL, growing_plan
from tests.models.tiny_voice import TINY

VIT = VitSettings(
    class_count=4,
    image_size=4,
    channel_count=1,
    pixel_mean=(0.5,),
    pixel_std=(0.5,),
    patch_size=2,
    model_size=8,
    head_count=2,
    head_size=4,
    layer_count=3,
    feedforward_size=12,
)
CHARACTERS = CharTransformerSettings(
    model_size=8, head_count=2, head_size=4, layer_count=3, feedforward_size=12
)
SEQUENCES = Seq2SeqSettings(
    symbol_count=9,
    model_size=8,
    head_count=2,
    encoder_layer_count=3,
    decoder_layer_count=3,
    feedforward_size=12,
)
VOICE = msgspec.structs.replace(TINY, layer_count=3, prenet_dropout=0.0)
ZERO_STARTERS = ("transformer_lm", "vit", "transformer_tts")
FAMILIES: dict[str, tuple[ModelSettings, str]] = {
    "transformer_lm": (MODEL, "next_word"),
    "vit": (VIT, "image_classification"),
    "char_transformer": (CHARACTERS, "next_character"),
    "seq2seq": (SEQUENCES, "sequence"),
    "transformer_tts": (VOICE, "speech"),
}


def draws(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def trained(plan: Plan) -> Tensor:
    """Return parameters that have moved, norms and biases too."""
    first = first_parameters(plan)
    return first + 0.1 * torch.randn(first.shape, generator=draws(5))


@torch.no_grad()
def predictions(plan: Plan, parameters: Tensor) -> Tensor:
    """Return what a model makes of a few fixed examples."""
    network = build_network(plan.model)
    load_parameters(network, schema_of(plan.model), parameters)
    network.eval()
    symbols = torch.randint(3, 9, (2, 6), generator=draws(1))
    match plan.task:
        case "next_word":
            words = word_network(network)
            return words.features(symbols, None)[0] @ words.output_weight.t()
        case "image_classification":
            images = image_network(network)
            pixels = torch.randint(0, 255, (2, 4, 4, 1), generator=draws(1), dtype=torch.uint8)
            return torch.as_tensor(images.head(images.features(pixels)))
        case "next_character":
            return character_network(network).features(symbols)
        case "speech":
            frames = torch.randn(2, 8, 5, generator=draws(1))
            said = voice_network(network)(symbols, frames, torch.ones(2, 8, dtype=torch.bool))
            return torch.cat([said.after.flatten(), said.stop.flatten()])
        case _:
            return sequence_network(network).features(symbols, symbols)


def tensors(flat: Tensor, schema: Schema) -> dict[str, Tensor]:
    return {name: flat[where] for name, where in schema.slices.items()}


@pytest.mark.parametrize("family", ZERO_STARTERS)
def test_a_model_that_grows_by_zero_outputs_predicts_as_before(family: str) -> None:
    model, task = FAMILIES[family]
    before, after = (growing_plan(stage, model=model, task=task) for stage in (1, 3))
    parameters = trained(before)

    grown = grow(parameters, before, after, whole_model)

    expected = predictions(before, parameters)
    assert expected.std() > 0.01
    assert (predictions(after, grown) - expected).abs().max() < 1e-6


@pytest.mark.parametrize("family", FAMILIES)
def test_the_papers_start_changes_what_is_predicted(family: str) -> None:
    model, task = FAMILIES[family]
    before, after = (
        growing_plan(stage, model=model, task=task, start="random") for stage in (1, 2)
    )
    parameters = trained(before)

    grown = grow(parameters, before, after, whole_model)

    expected = predictions(before, parameters)
    assert (predictions(after, grown) - expected).norm() > 0.001 * expected.norm()


@pytest.mark.parametrize("family", FAMILIES)
def test_old_tensors_stay_and_new_layers_come_on_top_of_every_stack(family: str) -> None:
    model, task = FAMILIES[family]
    before, after = (
        growing_plan(stage, model=model, task=task, start="random") for stage in (1, 2)
    )
    parameters = trained(before)

    grown = tensors(grow(parameters, before, after, whole_model), schema_of(after.model))

    for name, old in tensors(parameters, schema_of(before.model)).items():
        assert torch.equal(grown.pop(name), old)
    stacks = [stack.name for stack in growing_layers(model).stacks]
    assert {name.rsplit(".1.", 1)[0] for name in grown} == set(stacks)
    # Drawn anew, not copied: no two layers start alike.
    matrices = [old for name, old in grown.items() if name.endswith("to_out.weight")]
    assert len(matrices) >= len(stacks)
    assert all(matrix.std() > 0 for matrix in matrices)


@pytest.mark.parametrize("family", ZERO_STARTERS)
def test_only_what_writes_to_the_stream_starts_at_zero(family: str) -> None:
    model, task = FAMILIES[family]
    before, after = (growing_plan(stage, model=model, task=task) for stage in (1, 2))

    grown = tensors(grow(trained(before), before, after, whole_model), schema_of(after.model))

    outputs = {
        f"{stack.name}.1.{output}.{entry}"
        for stack in growing_layers(model).stacks
        for output in growing_layers(model).residual_outputs
        for entry in ("weight", "bias")
        if f"{stack.name}.1.{output}.{entry}" in grown
    }
    assert len(outputs) >= 4
    zero = {name for name, values in grown.items() if not values.any()}
    assert outputs <= zero
    # Matrices elsewhere are drawn: of what is not an output only biases, and who speaks, are zero.
    others = {name for name in zero - outputs if not name.endswith(".bias")}
    assert others <= {"speaker.vector"}


def test_growing_in_one_step_or_in_two_comes_to_the_same() -> None:
    first, second, third = (growing_plan(stage) for stage in (1, 2, 3))
    parameters = trained(first)

    at_once = grow(parameters, first, third, whole_model)

    in_steps = grow(grow(parameters, first, second, whole_model), second, third, whole_model)
    assert torch.equal(at_once, in_steps)
    # Each stage draws its own: the third layer is no copy of the second.
    grown = tensors(at_once, schema_of(third.model))
    assert not torch.equal(
        grown["blocks.2.attention.to_qkv.weight"], grown["blocks.1.attention.to_qkv.weight"]
    )


def test_what_is_personal_grows_to_the_same_numbers_wherever_it_is_grown() -> None:
    def personal(plan: Plan) -> Schema:
        return plan_schema(plan).with_roles(Role.PERSONAL)

    before, after = (growing_plan(stage, personalisation=VanillaSettings()) for stage in (1, 3))
    kept = torch.arange(float(personal(before).element_count))

    grown = tensors(grow(kept, before, after, personal), personal(after))

    whole = tensors(first_parameters(after), schema_of(after.model))
    assert list(grown) == [f"blocks.{block}.attention.to_qkv.weight" for block in range(3)]
    assert torch.equal(grown["blocks.0.attention.to_qkv.weight"], kept)
    for block in (1, 2):
        name = f"blocks.{block}.attention.to_qkv.weight"
        assert torch.equal(grown[name], whole[name])


def test_nothing_grows_within_a_stage_and_no_stage_comes_before_an_earlier_one() -> None:
    first, second = growing_plan(1), growing_plan(2)
    parameters = trained(first)

    assert grow(parameters, first, first, whole_model) is parameters
    with pytest.raises(ValueError, match="growth_stage must not fall, got 1 after 2"):
        grow(trained(second), second, first, whole_model)
    with pytest.raises(ValueError, match="parameters must be float32 of shape"):
        grow(parameters, second, second, whole_model)
