import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from models.layers.dropout import use_generator
from models.layers.positions import sinusoids
from models.networks.flat_parameters import initial_parameters, load_parameters
from models.networks.registry import build_network, sequence_network
from models.networks.seq2seq import PADDING, Seq2Seq
from models.settings.model import schema_of
from models.settings.seq2seq import Seq2SeqSettings
from models.vector.named_parts import Part, part_names

SETTINGS = Seq2SeqSettings(
    symbol_count=12,
    context_size=8,
    model_size=8,
    head_count=2,
    encoder_layer_count=2,
    decoder_layer_count=1,
    feedforward_size=6,
)


def network_of(settings: Seq2SeqSettings) -> Seq2Seq:
    network = sequence_network(build_network(settings))
    load_parameters(network, schema_of(settings), initial_parameters(settings, seed=1))
    return network.eval()


def symbols(batch: int, time: int, seed: int = 0) -> Tensor:
    return torch.randint(3, 12, (batch, time), generator=torch.Generator().manual_seed(seed))


def test_the_transformer_is_what_its_equations_say() -> None:
    network = network_of(SETTINGS)
    weights = network.state_dict()

    def linear(name: str, values: Tensor) -> Tensor:
        return functional.linear(values, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    def norm(name: str, values: Tensor) -> Tensor:
        return functional.layer_norm(
            values, (8,), weights[f"{name}.weight"], weights[f"{name}.bias"]
        )

    def attend(name: str, projected: list[Tensor], hidden: Tensor) -> Tensor:
        heads = []
        for own in (slice(0, 4), slice(4, 8)):
            query, key, value = (part[:, own] for part in projected)
            scores = (query @ key.t() / math.sqrt(4)).masked_fill(hidden, -math.inf)
            heads.append(scores.softmax(1) @ value)
        return linear(f"{name}.to_out", torch.cat(heads, 1))

    def itself(layer: str, values: Tensor, hidden: Tensor) -> Tensor:
        projected = list(linear(f"{layer}.attention.to_qkv", values).chunk(3, 1))
        added = attend(f"{layer}.attention", projected, hidden)
        return norm(f"{layer}.attention_norm", values + added)

    def across(layer: str, values: Tensor, memory: Tensor, hidden: Tensor) -> Tensor:
        name = f"{layer}.cross_attention"
        projected = [
            linear(f"{name}.to_q", values),
            linear(f"{name}.to_k", memory),
            linear(f"{name}.to_v", memory),
        ]
        return norm(f"{name}_norm", values + attend(name, projected, hidden))

    def feed(layer: str, values: Tensor) -> Tensor:
        added = linear(f"{layer}.feedforward.2", linear(f"{layer}.feedforward.0", values).relu())
        return norm(f"{layer}.feedforward_norm", values + added)

    source, written = symbols(1, 5), symbols(1, 4, seed=1)
    memory = weights["source.weight"][source[0]] * math.sqrt(8) + sinusoids(5, 8)
    for layer in ("encoder.0", "encoder.1"):
        memory = feed(layer, itself(layer, memory, torch.zeros(5, 5).bool()))
    values = weights["target.weight"][written[0]] * math.sqrt(8) + sinusoids(4, 8)
    values = itself("decoder.0", values, torch.ones(4, 4).triu(1).bool())
    values = feed("decoder.0", across("decoder.0", values, memory, torch.zeros(4, 5).bool()))

    with torch.no_grad():
        assert_close(network.features(source, written)[0], values)


@pytest.mark.parametrize("changed", range(1, 7))
def test_no_written_symbol_sees_a_later_one(changed: int) -> None:
    network = network_of(SETTINGS)
    source, written = symbols(3, 6), symbols(3, 7, seed=1)
    other = written.clone()
    other[:, changed:] = (other[:, changed:] - 2) % 9 + 3

    before, after = network.features(source, written), network.features(source, other)

    assert torch.equal(before[:, :changed], after[:, :changed])
    assert bool((before[:, changed:] != after[:, changed:]).any(-1).all())


@pytest.mark.parametrize("changed", range(6))
def test_every_written_symbol_sees_the_whole_source(changed: int) -> None:
    network = network_of(SETTINGS)
    source, written = symbols(3, 6), symbols(3, 4, seed=1)
    other = source.clone()
    other[:, changed] = (other[:, changed] - 2) % 9 + 3

    before, after = network.features(source, written), network.features(other, written)

    assert bool((before != after).any(-1).all())


def test_padding_of_the_source_is_not_seen() -> None:
    network = network_of(SETTINGS)
    source, written = symbols(2, 5), symbols(2, 4, seed=1)
    padded = functional.pad(source, (0, 3), value=PADDING)

    with torch.no_grad():
        expected = network.features(source, written)
        assert_close(network.features(padded, written), expected)
        # What stands where padding is looked up changes nothing, not even a rounding.
        before = network.features(padded, written)
        network.source.weight[PADDING] += 100
        assert torch.equal(network.features(padded, written), before)


def test_its_projections_are_those_of_all_three_attentions() -> None:
    assert part_names(schema_of(SETTINGS), Part.PROJECTION, method="fedtp") == (
        "encoder.0.attention.to_qkv.weight",
        "encoder.1.attention.to_qkv.weight",
        "decoder.0.attention.to_qkv.weight",
        "decoder.0.cross_attention.to_q.weight",
        "decoder.0.cross_attention.to_k.weight",
        "decoder.0.cross_attention.to_v.weight",
    )


def test_dropout_draws_from_its_own_generator() -> None:
    network = network_of(SETTINGS).train()

    def draw() -> Tensor:
        use_generator(network, torch.Generator().manual_seed(1))
        return network.features(symbols(2, 5), symbols(2, 3))

    assert torch.equal(draw(), draw())
    assert not torch.equal(draw(), network.features(symbols(2, 5), symbols(2, 3)))


def test_sequences_longer_than_the_context_are_refused() -> None:
    network = network_of(SETTINGS)

    with pytest.raises(ValueError, match="at most 8 symbols, got 9"):
        network.features(symbols(1, 9), symbols(1, 2))
    with pytest.raises(ValueError, match="at most 8 symbols, got 9"):
        network.features(symbols(1, 2), symbols(1, 9))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"symbol_count": 3}, "symbol_count must be >= 4, got 3"),
        ({"context_size": 1}, "context_size must be >= 2"),
        ({"model_size": 6, "head_count": 4}, "multiple of head_count 4, got 6"),
        ({"model_size": 9, "head_count": 3}, "must be even"),
        ({"decoder_layer_count": 0}, "decoder_layer_count must be >= 1"),
        ({"feedforward_size": 0}, "feedforward_size must be >= 1"),
        ({"dropout": 1.0}, "dropout must be in"),
    ],
)
def test_settings_that_make_no_transformer_are_refused(
    changes: dict[str, float], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        Seq2SeqSettings(**{"symbol_count": 12, **changes})  # type: ignore[arg-type]  # on purpose
