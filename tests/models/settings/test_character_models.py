import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from models.layers.dropout import use_generator
from models.layers.positions import sinusoids
from models.networks.flat_parameters import initial_parameters, load_parameters
from models.networks.registry import CharacterNetwork, build_network, character_network
from models.settings.character import CharLstmSettings, CharTransformerSettings
from models.settings.model import CharacterModelSettings, schema_of

LSTM = CharLstmSettings(context_size=12, hidden_size=9)
TRANSFORMER = CharTransformerSettings(
    context_size=12, model_size=8, head_count=2, head_size=5, feedforward_size=7
)
FAMILIES: list[CharacterModelSettings] = [LSTM, TRANSFORMER]


def network_of(settings: CharacterModelSettings) -> CharacterNetwork:
    network = character_network(build_network(settings))
    load_parameters(network, schema_of(settings), initial_parameters(settings, seed=1))
    return network.eval()


def text(batch: int, time: int) -> Tensor:
    return torch.randint(100, (batch, time), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("settings", FAMILIES)
@pytest.mark.parametrize("changed", range(1, 12))
def test_no_feature_depends_on_a_later_character(
    settings: CharacterModelSettings, changed: int
) -> None:
    network = network_of(settings)
    characters = text(3, 12)
    other = characters.clone()
    other[:, changed:] = (other[:, changed:] + 7) % 100

    before, after = network.features(characters), network.features(other)

    assert torch.equal(before[:, :changed], after[:, :changed])
    # Every feature from the changed character on does see it: a dead network would be noticed.
    assert bool((before[:, changed:] != after[:, changed:]).any(-1).all())


@pytest.mark.parametrize("settings", FAMILIES)
def test_every_family_is_a_character_model(settings: CharacterModelSettings) -> None:
    network = network_of(settings)

    assert network.head(network.features(text(2, 5))).shape == (2, 5, 100)
    with pytest.raises(ValueError, match="at most 12 characters, got 13"):
        network.features(text(1, 13))


def test_the_lstm_is_that_of_leaf() -> None:
    gates = 4 * 256
    first, second = gates * (8 + 256 + 2), gates * (256 + 256 + 2)

    count = schema_of(CharLstmSettings()).element_count

    assert count == 100 * 8 + first + second + 100 * 256 + 100


def test_the_transformer_is_fedtps() -> None:
    block = 1536 * 128 + 128 * 512 + 256 + (256 * 128 + 256) + (128 * 256 + 128) + 256

    count = schema_of(CharTransformerSettings()).element_count

    assert count == 100 * 128 + 256 + 2 * block + 100 * 128


def test_a_transformer_is_what_its_equations_say() -> None:
    network = network_of(TRANSFORMER)
    weights = network.state_dict()

    def linear(name: str, values: Tensor) -> Tensor:
        return functional.linear(values, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    def norm(name: str, values: Tensor) -> Tensor:
        scale, shift = weights[f"{name}.weight"], weights[f"{name}.bias"]
        return functional.layer_norm(values, (8,), scale, shift, eps=1e-6)

    def attend(name: str, values: Tensor) -> Tensor:
        query, key, value = linear(f"{name}.to_qkv", values).chunk(3, dim=1)
        ahead = torch.ones(6, 6).triu(1).bool()
        heads = []
        for first in (0, 5):
            own = slice(first, first + 5)
            scores = (query[:, own] @ key[:, own].t() / math.sqrt(5)).masked_fill(ahead, -math.inf)
            heads.append(scores.softmax(1) @ value[:, own])
        return linear(f"{name}.to_out", torch.cat(heads, 1))

    characters = text(1, 6)
    values = norm("norm", weights["embedding.weight"][characters[0]] + sinusoids(6, 8))
    for block in ("blocks.0", "blocks.1"):
        values = norm(f"{block}.attention_norm", values + attend(f"{block}.attention", values))
        hidden = linear(f"{block}.feedforward.0", values).relu()
        added = linear(f"{block}.feedforward.2", hidden)
        values = norm(f"{block}.feedforward_norm", values + added)

    with torch.no_grad():
        logits = network.head(network.features(characters))[0]
        assert_close(logits, linear("head", values) / math.sqrt(8))


def test_positions_are_sines_and_cosines_of_ever_longer_waves() -> None:
    table = sinusoids(50, 6)

    assert table.shape == (50, 6)
    assert table[0].tolist() == [0, 1, 0, 1, 0, 1]
    assert float(table[7, 0]) == pytest.approx(math.sin(7))
    assert float(table[7, 1]) == pytest.approx(math.cos(7))
    assert float(table[7, 4]) == pytest.approx(math.sin(7 / 10_000 ** (4 / 6)))
    assert float(table[49, 5]) == pytest.approx(math.cos(49 / 10_000 ** (4 / 6)))


def test_glorots_bound_and_norms_of_one() -> None:
    settings = CharTransformerSettings()
    state = network_of(settings).state_dict()

    largest = float(state["blocks.0.attention.to_qkv.weight"].abs().max())
    assert largest == pytest.approx(math.sqrt(6 / (1536 + 128)), rel=1e-3)
    assert bool((state["blocks.1.feedforward_norm.weight"] == 1).all())
    assert not state["blocks.1.feedforward.0.bias"].any()


def test_dropout_draws_from_its_own_generator() -> None:
    network = network_of(TRANSFORMER).train()
    characters = text(2, 5)

    def draw() -> Tensor:
        use_generator(network, torch.Generator().manual_seed(1))
        return network.features(characters)

    assert torch.equal(draw(), draw())
    assert not torch.equal(draw(), network.features(characters))


@pytest.mark.parametrize(
    ("family", "changes", "says"),
    [
        (CharLstmSettings, {"context_size": 0}, "context_size must be >= 1, got 0"),
        (CharLstmSettings, {"hidden_size": 0}, "hidden_size must be >= 1"),
        (CharLstmSettings, {"layer_count": 0}, "layer_count must be >= 1"),
        (CharTransformerSettings, {"model_size": 7}, "model_size must be even, got 7"),
        (CharTransformerSettings, {"head_size": 0}, "head_size must be >= 1"),
        (CharTransformerSettings, {"dropout": -0.1}, "dropout must be in"),
    ],
)
def test_settings_that_make_no_model_are_refused(
    family: type[CharLstmSettings] | type[CharTransformerSettings],
    changes: dict[str, int],
    says: str,
) -> None:
    with pytest.raises(ValueError, match=says):
        family(**changes)
