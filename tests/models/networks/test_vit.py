import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from models.layers.dropout import use_generator
from models.networks.flat_parameters import initial_parameters, load_parameters
from models.networks.registry import build_network
from models.networks.vit import Vit, cut_patches
from models.settings.image import VitSettings
from models.settings.model import schema_of

TINY = VitSettings(
    class_count=3,
    image_size=8,
    channel_count=1,
    pixel_mean=(0.5,),
    pixel_std=(0.25,),
    model_size=6,
    head_count=2,
    head_size=5,
    layer_count=2,
    feedforward_size=7,
)


def network_of(settings: VitSettings) -> Vit:
    network = build_network(settings)
    assert isinstance(network, Vit)
    load_parameters(network, schema_of(settings), initial_parameters(settings, seed=1))
    return network.eval()


def images(count: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (count, 8, 8, 1), generator=generator).to(torch.uint8)


def test_fedtps_vit_has_as_many_parameters_as_the_papers_code() -> None:
    schema = schema_of(VitSettings(class_count=10))

    # Per block: norms 2 * 256, qkv 1536 * 128, out 512 * 128 + 128, MLP 2 * 128 * 256 + 256 + 128.
    block = 512 + 196_608 + 65_664 + 65_920
    # Patches 48 -> 128, class token, 65 positions, last norm, head.
    assert schema.element_count == 8 * block + 6_272 + 128 + 8_320 + 256 + 1_290 == 2_645_898
    generated = [spec for spec in schema.tensors if "to_qkv" in spec.name]
    assert sum(spec.element_count for spec in generated) == 1_572_864


def test_a_vit_is_what_its_equations_say() -> None:
    network = network_of(TINY)
    weights = network.state_dict()

    def linear(name: str, values: Tensor) -> Tensor:
        return functional.linear(values, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(name: str, values: Tensor) -> Tensor:
        return functional.layer_norm(
            values, (6,), weights[f"{name}.weight"], weights[f"{name}.bias"]
        )

    def attend(name: str, values: Tensor) -> Tensor:
        query, key, value = (values @ weights[f"{name}.to_qkv.weight"].t()).split(10, dim=1)
        heads = []
        for first in (0, 5):
            own = slice(first, first + 5)
            scores = query[:, own] @ key[:, own].t() / math.sqrt(5)
            heads.append(scores.softmax(1) @ value[:, own])
        return linear(f"{name}.to_out", torch.cat(heads, 1))

    picture = images(1)
    pixels = (picture[0, :, :, 0].float() / 255 - 0.5) / 0.25
    squares = [pixels[r : r + 4, c : c + 4].flatten() for r in (0, 4) for c in (0, 4)]
    tokens = [weights["class_token"], *(linear("patches", square) for square in squares)]
    values = torch.stack(tokens) + weights["position.weight"]
    for block in ("blocks.0", "blocks.1"):
        values = values + attend(f"{block}.attention", norm(f"{block}.attention_norm", values))
        normed = norm(f"{block}.feedforward_norm", values)
        hidden = functional.gelu(linear(f"{block}.feedforward.to_hidden", normed))
        values = values + linear(f"{block}.feedforward.to_out", hidden)
    expected = linear("head", norm("norm", values[0]))

    with torch.no_grad():
        assert_close(network.head(network.features(picture))[0], expected)


def test_patches_are_cut_row_by_row_with_channels_last() -> None:
    picture = torch.arange(2 * 4 * 6).reshape(1, 2, 4, 6)

    patches = cut_patches(picture, 2)

    assert patches.shape == (1, 6, 8)
    # Second patch of the first row: rows 0-1, columns 2-3, two channels 24 apart.
    assert patches[0, 1].tolist() == [2, 26, 3, 27, 8, 32, 9, 33]


def test_token_and_positions_start_standard_normal_and_layers_as_the_framework_does() -> None:
    settings = VitSettings(class_count=10, layer_count=1)
    state = network_of(settings).state_dict()

    # 8,320 and 128 draws: six standard errors of the deviation, a chance of 2e-9.
    assert float(state["position.weight"].std()) == pytest.approx(1, abs=6 / math.sqrt(2 * 8320))
    assert float(state["class_token"].std()) == pytest.approx(1, abs=6 / math.sqrt(2 * 128))
    projection = state["blocks.0.attention.to_qkv.weight"]
    assert float(projection.abs().max()) == pytest.approx(1 / math.sqrt(128), rel=1e-3)
    assert bool((state["norm.weight"] == 1).all())
    assert not state["norm.bias"].any()


def test_dropout_draws_from_its_own_generator() -> None:
    network = network_of(TINY).train()
    picture = images(2)

    def draw() -> Tensor:
        use_generator(network, torch.Generator().manual_seed(1))
        return network.features(picture)

    assert torch.equal(draw(), draw())
    assert not torch.equal(draw(), network.features(picture))


def test_a_vit_is_a_classifier_of_any_depth() -> None:
    network = network_of(VitSettings(class_count=5, layer_count=3))

    assert network.pixels.shape == (32, 32, 3)
    assert network.head.out_features == 5
    assert len(network.blocks) == 3


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"class_count": 1}, "class_count must be >= 2, got 1"),
        ({"image_size": 10}, "patch_size must divide image_size 10, got 4"),
        ({"channel_count": 1}, "pixel_mean must have 1 finite values, one a channel"),
        ({"pixel_std": (1.0, 0.0, 1.0)}, "pixel_std must be > 0"),
        ({"pixel_mean": (0.0, math.nan, 0.0)}, "pixel_mean must have 3 finite"),
        ({"head_size": 0}, "head_size must be >= 1"),
        ({"feedforward_size": 0}, "feedforward_size must be >= 1"),
        ({"dropout": 1.0}, "dropout must be in"),
    ],
)
def test_settings_that_make_no_vit_are_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        VitSettings(**{"class_count": 10, **changes})  # type: ignore[arg-type]  # wrong on purpose
