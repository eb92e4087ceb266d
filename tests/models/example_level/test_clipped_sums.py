"""Gradients of each example are held against a backward pass for each example alone."""

import math
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from models.example_level.clipped_sums import ExampleGradients, norm_bounds
from models.example_level.parameter_uses import AffineUse, LookupUse, ParameterUse, ScaleUse
from models.example_level.recording import check_recordable, recording
from models.networks.flat_parameters import initial_parameters, load_parameters
from models.networks.registry import WordNetwork, build_network
from models.settings.model import (
    GruLmSettings,
    TransformerLmSettings,
    WordModelSettings,
    schema_of,
)
from models.tasks.text_streams import Window, sentence_edges, sentence_window
from models.text.vocabulary import EOS

TIED = GruLmSettings(vocabulary_size=20, hidden_size=6)
UNTIED = GruLmSettings(vocabulary_size=20, hidden_size=6, tied=False)
TRANSFORMER = TransformerLmSettings(
    vocabulary_size=20, model_size=8, head_count=2, feedforward_size=16, context_size=7
)
UNTIED_TRANSFORMER = TransformerLmSettings(
    vocabulary_size=20, model_size=8, head_count=2, feedforward_size=16, context_size=7, tied=False
)
MODELS = pytest.mark.parametrize(
    "settings", [TIED, UNTIED, TRANSFORMER, UNTIED_TRANSFORMER], ids=str
)

LENGTHS = (5, 1, 7, 3, 7, 2)


def make_network(settings: WordModelSettings) -> WordNetwork:
    """Return a network with parameters three times their usual size, so that gradients differ."""
    network = build_network(settings)
    load_parameters(network, schema_of(settings), 3 * initial_parameters(settings, seed=1))
    return network


def make_window(lengths: tuple[int, ...] = LENGTHS) -> Window:
    """Return sentences of these lengths; words come twice, in one sentence and in several."""
    stream = torch.randint(2, 9, (sum(lengths),), generator=torch.Generator().manual_seed(4))
    stream[torch.tensor(lengths).cumsum(0) - 1] = EOS
    return sentence_window(stream, sentence_edges(stream, max(lengths)))


def gradient_alone(network: WordNetwork, window: Window, example: int) -> dict[str, Tensor]:
    """Return one example's gradient: a batch of one, without padding, the framework's loss."""
    length = int((window.targets[example] >= 0).sum())
    features, _ = network.features(window.inputs[example : example + 1, :length], None)
    logits = features[0] @ network.output_weight.t() + network.output_bias
    loss = cross_entropy(logits, window.targets[example, :length])
    named = dict(network.named_parameters())
    return dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))


def norm_of(gradient: Mapping[str, Tensor]) -> float:
    return math.hypot(*(float(part.double().norm()) for part in gradient.values()))


def empty_sums(network: WordNetwork) -> dict[str, Tensor]:
    return {name: torch.zeros_like(held) for name, held in network.named_parameters()}


@MODELS
def test_every_parameter_has_each_examples_own_gradient(settings: WordModelSettings) -> None:
    network, window = make_network(settings), make_window()

    _, uses = ExampleGradients(network).record(window)

    for example in range(len(LENGTHS)):
        own = empty_sums(network)
        only = torch.zeros(len(LENGTHS))
        only[example] = 1
        for use in uses:
            use.add_weighted(only, own)
        expected = gradient_alone(network, window, example)
        for name, gradient in own.items():
            assert_close(gradient, expected[name], rtol=1e-4, atol=1e-6)


@MODELS
def test_a_norm_is_never_below_that_of_the_gradient_and_hardly_above(
    settings: WordModelSettings,
) -> None:
    network, window = make_network(settings), make_window()

    bounds = norm_bounds(ExampleGradients(network).record(window)[1])

    for example, bound in enumerate(bounds.tolist()):
        norm = norm_of(gradient_alone(network, window, example))
        assert norm <= bound <= norm * 1.001


@MODELS
def test_the_sum_is_of_gradients_each_shortened_by_its_own_norm(
    settings: WordModelSettings,
) -> None:
    network, window = make_network(settings), make_window()
    alone = [gradient_alone(network, window, example) for example in range(len(LENGTHS))]
    norms = [norm_of(gradient) for gradient in alone]
    clipping_norm = sorted(norms)[3]  # three are left alone, and others shortened

    sums = empty_sums(network)
    losses = ExampleGradients(network).add_clipped(window, clipping_norm, sums)

    factors = [min(1.0, clipping_norm / norm) for norm in norms]
    assert min(factors) < 0.9
    for name, total in sums.items():
        expected = sum(f * own[name] for f, own in zip(factors, alone, strict=True))
        assert_close(total, expected, rtol=1e-3, atol=1e-4)
    assert losses.shape == (len(LENGTHS),)


@pytest.mark.parametrize("clipping_norm", [1e-3, 0.1, 1.0])
@MODELS
def test_no_example_moves_the_sum_further_than_the_clipping_norm(
    settings: WordModelSettings, clipping_norm: float
) -> None:
    network = make_network(settings)
    gradients = ExampleGradients(network)

    for length in (1, 4, 7):
        sums = empty_sums(network)
        gradients.add_clipped(make_window((length,)), clipping_norm, sums)
        assert norm_of(sums) <= clipping_norm


@MODELS
def test_an_examples_gradient_does_not_depend_on_the_others(settings: WordModelSettings) -> None:
    network, window = make_network(settings), make_window()
    gradients = ExampleGradients(network)
    few = Window(window.inputs[:2], window.targets[:2], True)

    together = norm_bounds(gradients.record(window)[1])
    apart = norm_bounds(gradients.record(few)[1])

    assert_close(together[:2], apart)


@MODELS
def test_the_loss_of_an_example_is_the_mean_over_its_own_tokens(
    settings: WordModelSettings,
) -> None:
    network, window = make_network(settings), make_window()

    losses, _ = ExampleGradients(network).record(window)

    features, _ = network.features(window.inputs, None)
    logits = features @ network.output_weight.t() + network.output_bias
    for example, targets in enumerate(window.targets):
        used = targets >= 0
        assert_close(losses[example], cross_entropy(logits[example][used], targets[used]))


def test_terms_that_cancel_do_not_hide_a_norm() -> None:
    # The gradient is (g + g') a^T with g' = -g but for its last bits; in float32 the sum of inner
    # products can come out negative.
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(200, 1, 64, generator=generator).expand(-1, 2, -1)
    first = torch.randn(200, 1, 64, generator=generator)
    second = -first * (1 + 1e-6 * torch.randn(200, 1, 64, generator=generator))
    gradients = torch.cat([first, second], dim=1)

    bounds = norm_bounds([AffineUse("weight", "bias", inputs, gradients)])

    left = gradients.double().sum(1)
    norms = left.norm(dim=1) * (inputs[:, 0].double().square().sum(1) + 1).sqrt()
    assert bool((bounds.double() >= norms).all())


@pytest.mark.parametrize(
    ("use", "squared_norm", "size"),
    [
        # Two equal terms of twelve ones: twelve twos, and 2 sqrt(12).
        (AffineUse("w", None, torch.ones(1, 2, 3), torch.ones(1, 2, 4)), 48, 2 * 12**0.5),
        # With a bias four ones more each.
        (AffineUse("w", "b", torch.ones(1, 2, 3), torch.ones(1, 2, 4)), 64, 2 * 16**0.5),
        (LookupUse("w", torch.tensor([[5, 5]]), torch.ones(1, 2, 6)), 24, 2 * 6**0.5),
        # In two rows nothing is added up: twelve ones.
        (LookupUse("w", torch.tensor([[5, 4]]), torch.ones(1, 2, 6)), 12, 2 * 6**0.5),
        (ScaleUse("w", "b", torch.ones(1, 2, 3), torch.ones(1, 2, 3)), 24, 4 * 3**0.5),
    ],
)
def test_norm_and_size_of_equal_terms(use: ParameterUse, squared_norm: float, size: float) -> None:
    assert float(use.squared_norms()) == squared_norm
    assert float(use.sizes()) == pytest.approx(size)


def test_recording_leaves_the_network_as_it_was() -> None:
    network, window = make_network(TIED), make_window()
    before = gradient_alone(network, window, 0)

    ExampleGradients(network).record(window)

    assert all(parameter.requires_grad for parameter in network.parameters())
    assert all(parameter.grad is None for parameter in network.parameters())
    assert_close(gradient_alone(network, window, 0), before)


def test_recording_that_fails_leaves_the_network_as_it_was() -> None:
    network = make_network(TRANSFORMER)

    with pytest.raises(ValueError, match="at most 7 tokens"):
        ExampleGradients(network).record(make_window((9,)))

    assert all(parameter.requires_grad for parameter in network.parameters())
    assert not any(module._forward_hooks for module in network.modules())


class AddedPositions(nn.Module):
    """Positions as a bare parameter, added to every example."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.position = nn.Parameter(torch.zeros(7, 8))


class TimeFirst(nn.Linear):
    """A layer of an accepted type's kind, whose batch lies on another axis."""


def with_layer(layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Embedding(20, 8), layer)


def frozen(network: nn.Module) -> nn.Module:
    network.get_parameter("norm.weight").requires_grad_(False)
    return network


def sharing() -> nn.Module:
    first, second = nn.Linear(8, 8), nn.Linear(8, 8)
    second.weight = first.weight
    return nn.Sequential(first, second)


def bare_parameter() -> nn.Module:
    block = nn.Sequential(nn.Linear(8, 8))
    block.register_parameter("table", nn.Parameter(torch.zeros(7, 8)))
    return block


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        (with_layer(nn.BatchNorm1d(8)), "BatchNorm1d"),
        (with_layer(nn.MultiheadAttention(8, 2, batch_first=True)), "MultiheadAttention"),
        (with_layer(TimeFirst(8, 8)), "TimeFirst"),
        (with_layer(nn.GRU(8, 8)), "GRU"),
        (with_layer(nn.Dropout(0.1)), "Dropout"),
        (AddedPositions(), "AddedPositions"),
        (bare_parameter(), "the parameter table outside any layer"),
        (nn.Embedding(20, 8, padding_idx=0), "without options"),
        (nn.Embedding(20, 8, scale_grad_by_freq=True), "without options"),
        (with_layer(nn.LayerNorm(8, elementwise_affine=False)), "must have a weight and a bias"),
        (frozen(make_network(TRANSFORMER)), "norm.weight is frozen"),
        (sharing(), "0.weight must belong to one layer"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_layers_whose_gradients_could_be_wrong_are_refused(network: nn.Module, reason: str) -> None:
    with pytest.raises(ValueError, match=f"example_privacy: .*{reason}"):
        check_recordable(network)


@pytest.mark.parametrize(
    ("layer", "rows"),
    [
        (nn.Embedding(7, 8), torch.arange(4)),  # positions without a batch dimension
        (nn.Embedding(7, 8), torch.arange(4).unsqueeze(0)),  # one row for all examples
        (nn.Linear(8, 8), torch.zeros(4, 3, 8)),  # time before the batch
        (nn.LayerNorm(8), torch.zeros(3, 8)),
    ],
)
def test_rows_that_are_not_of_each_example_are_refused(layer: nn.Module, rows: Tensor) -> None:
    with (
        recording(layer, batch=3, time=4),
        pytest.raises(ValueError, match="must be given 3 examples of 4 tokens"),
    ):
        layer(rows)


def test_a_layer_that_runs_twice_is_refused() -> None:
    layer = nn.Linear(8, 8)
    values = torch.zeros(3, 4, 8, requires_grad=True)

    with recording(layer, batch=3, time=4), pytest.raises(ValueError, match="must run once"):
        layer(layer(values))


def test_a_state_carried_from_elsewhere_is_refused() -> None:
    network = make_network(TIED)
    window = make_window()
    state = torch.zeros(1, len(LENGTHS), 6)

    with (
        recording(network, *window.inputs.shape),
        pytest.raises(ValueError, match="must start from a fresh state"),
    ):
        network.features(window.inputs, state)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@MODELS
def test_cuda_sums_what_the_processor_sums(settings: WordModelSettings) -> None:
    network, window = make_network(settings), make_window()
    expected = empty_sums(network)
    ExampleGradients(network).add_clipped(window, 0.5, expected)
    network = network.to("cuda")

    sums = empty_sums(network)
    ExampleGradients(network).add_clipped(window, 0.5, sums)

    for name, total in sums.items():
        assert_close(total.cpu(), expected[name], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        *((UNTIED, size) for size in (2.0**21, 1e19, 3e38, math.inf, math.nan)),
        *((UNTIED_TRANSFORMER, size) for size in (3e38, math.inf, math.nan)),
    ],
    ids=str,
)
def test_an_example_beyond_float32_counts_as_zero_and_spoils_no_other(
    settings: WordModelSettings, size: float
) -> None:
    network, window = make_network(settings), make_window()
    # Word 10 is read by the last example alone.
    window.inputs[-1, 1] = 10
    with torch.no_grad():
        network.embedding.weight[10, 0] = size
    others = Window(window.inputs[:-1], window.targets[:-1], starts_text=True)
    sums, expected = (
        {name: torch.zeros_like(value) for name, value in network.named_parameters()}
        for _ in range(2)
    )
    gradients = ExampleGradients(network)

    gradients.add_clipped(window, 1.0, sums)
    gradients.add_clipped(others, 1.0, expected)

    for name, value in sums.items():
        assert_close(value, expected[name], rtol=1e-4, atol=1e-6)
