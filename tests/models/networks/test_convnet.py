import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from models.layers.batch_norm import BatchNorm
from models.networks.convnet import ConvNet
from models.networks.flat_parameters import initial_parameters, load_parameters
from models.networks.registry import build_network
from models.settings.image import ConvNetSettings
from models.settings.model import schema_of


def network_of(settings: ConvNetSettings) -> ConvNet:
    network = build_network(settings)
    assert isinstance(network, ConvNet)
    load_parameters(network, schema_of(settings), initial_parameters(settings, seed=1))
    return network.eval()


def images(count: int, size: int = 32, channels: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (count, size, size, channels), generator=generator).to(torch.uint8)


def test_a_convnet_is_what_its_equations_say() -> None:
    network = network_of(ConvNetSettings(class_count=10))
    weights = network.state_dict()
    picture = images(2)
    mean, std = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2470, 0.2435, 0.2616])
    values = ((picture / 255 - mean) / std).permute(0, 3, 1, 2)
    for layer in ("convolution1", "convolution2"):
        values = functional.conv2d(values, weights[f"{layer}.weight"], weights[f"{layer}.bias"])
        values = functional.max_pool2d(functional.relu(values), 2)
    values = values.flatten(1)
    for layer in ("hidden1", "hidden2"):
        values = functional.linear(values, weights[f"{layer}.weight"], weights[f"{layer}.bias"])
        values = functional.relu(values)

    with torch.no_grad():
        assert_close(network.features(picture), values)


def test_the_convnet_of_cifar_has_as_many_parameters_as_its_layers_say() -> None:
    # 32 -> 28 -> 14 -> 10 -> 5 pixels; 32 kernels of them go into the first linear layer.
    layers = 16 * 75 + 16 + 32 * 400 + 32 + 120 * 800 + 120 + 84 * 120 + 84 + 10 * 84 + 10
    norms = 4 * (16 + 32 + 120 + 84) + 4

    assert schema_of(ConvNetSettings(class_count=10)).element_count == layers
    with_norms = ConvNetSettings(class_count=10, batch_norm=True)
    assert schema_of(with_norms).element_count == layers + norms


def test_digits_of_eight_pixels_fit_with_padding() -> None:
    settings = ConvNetSettings(
        class_count=10,
        image_size=8,
        channel_count=1,
        pixel_mean=(0.3,),
        pixel_std=(0.4,),
        padding=2,
    )

    # Both convolutions keep the size: 8 -> 4 -> 2.
    assert settings.flat_size == 32 * 4
    assert network_of(settings).features(images(3, 8, 1)).shape == (3, 84)


def test_a_batch_norm_is_that_of_the_framework() -> None:
    own, theirs = BatchNorm(3), torch.nn.BatchNorm2d(3)
    own.initialise()
    generator = torch.Generator().manual_seed(0)

    for _ in range(3):
        values = torch.randn(4, 3, 2, 2, generator=generator) * 3 + 1
        assert_close(own(values), theirs(values))

    state, expected = own.state_dict(), theirs.state_dict()
    for name in ("running_mean", "running_var"):
        assert_close(state[name], expected[name])
    assert float(state["batch_count"]) == int(expected["num_batches_tracked"]) == 3
    assert_close(own.eval()(values), theirs.eval()(values))


def test_one_image_alone_is_normed_by_running_statistics_and_leaves_them() -> None:
    network = network_of(ConvNetSettings(class_count=10, batch_norm=True)).train()
    network.features(images(4))
    before = {name: value.clone() for name, value in network.state_dict().items()}

    alone = network.features(images(1))

    assert torch.equal(alone, network.eval().features(images(1)))
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])
    assert float(before["batch_norm1.batch_count"]) == 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"image_size": 8}, "two convolutions of 5 and two halvings, got 8; raise padding, now 0"),
        ({"image_size": 4}, "got 4; raise padding"),
        ({"kernel_counts": (0, 3)}, "kernel_counts must be >= 1, got 0"),
        ({"hidden_sizes": (3, 0)}, "hidden_sizes must be >= 1, got 0"),
        ({"kernel_size": 0}, "kernel_size must be >= 1"),
        ({"padding": -1}, "padding must be >= 0"),
    ],
)
def test_settings_that_make_no_convnet_are_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ConvNetSettings(**{"class_count": 10, **changes})  # type: ignore[arg-type]  # on purpose
