import pytest
import torch
from torch.testing import assert_close

from models.layers.dropout import Dropout, use_generator
from models.networks.flat_parameters import initial_parameters, load_parameters
from models.networks.language_model import LanguageModel
from models.networks.registry import WordNetwork, build_network
from models.settings.model import GruLmSettings, TransformerLmSettings, WordModelSettings, schema_of

FAMILIES: list[WordModelSettings] = [
    GruLmSettings(vocabulary_size=30, hidden_size=8),
    GruLmSettings(vocabulary_size=30, hidden_size=8, tied=False),
    TransformerLmSettings(
        vocabulary_size=30, model_size=8, head_count=2, feedforward_size=16, context_size=12
    ),
    TransformerLmSettings(
        vocabulary_size=30,
        model_size=8,
        head_count=2,
        feedforward_size=16,
        context_size=12,
        tied=False,
    ),
]


def network_of(settings: WordModelSettings) -> WordNetwork:
    network = build_network(settings)
    load_parameters(network, schema_of(settings), 5 * initial_parameters(settings, seed=1))
    return network.eval()


@pytest.mark.parametrize("settings", FAMILIES)
@pytest.mark.parametrize("changed", range(1, 12))
def test_no_feature_depends_on_a_later_token(settings: WordModelSettings, changed: int) -> None:
    network = network_of(settings)
    tokens = torch.randint(30, (3, 12), generator=torch.Generator().manual_seed(0))
    other = tokens.clone()
    other[:, changed:] = (other[:, changed:] + 7) % 30

    before, _ = network.features(tokens, None)
    after, _ = network.features(other, None)

    assert torch.equal(before[:, :changed], after[:, :changed])
    # Every feature from the changed token on does see it: the test would notice a dead network.
    assert bool((before[:, changed:] != after[:, changed:]).any(-1).all())


@pytest.mark.parametrize("settings", FAMILIES)
def test_every_family_is_a_language_model(settings: WordModelSettings) -> None:
    network = network_of(settings)

    assert isinstance(network, LanguageModel)
    assert network.output_weight.shape == (30, 8)
    assert network.output_bias.shape == (30,)


@pytest.mark.parametrize("family", [0, 2])
def test_a_tied_matrix_is_the_embedding_and_an_untied_one_is_not(family: int) -> None:
    tied, untied = network_of(FAMILIES[family]), network_of(FAMILIES[family + 1])

    assert tied.output_weight is tied.embedding.weight
    assert untied.output_weight is not untied.embedding.weight


def test_a_carried_state_continues_the_text() -> None:
    network = network_of(FAMILIES[0])
    tokens = torch.randint(30, (2, 10), generator=torch.Generator().manual_seed(0))

    whole, _ = network.features(tokens, None)
    first, state = network.features(tokens[:, :4], None)
    second, _ = network.features(tokens[:, 4:], state)

    assert_close(torch.cat([first, second], dim=1), whole)


def test_a_sequence_longer_than_the_context_is_refused() -> None:
    network = network_of(FAMILIES[2])

    with pytest.raises(ValueError, match="at most 12 tokens, got 13"):
        network.features(torch.zeros(1, 13, dtype=torch.int64), None)


def test_dropout_draws_from_its_own_generator_and_keeps_the_mean() -> None:
    dropout = Dropout(0.25)
    values = torch.ones(100_000)
    untouched = torch.get_rng_state()

    dropout.generator = torch.Generator().manual_seed(3)
    first = dropout(values)
    dropout.generator = torch.Generator().manual_seed(3)

    assert torch.equal(dropout(values), first)
    assert torch.equal(torch.get_rng_state(), untouched)
    assert_close(first.unique(), torch.tensor([0.0, 4 / 3]))
    # Kept share 0.75 with standard deviation 0.0014: six of them are a chance of 2e-9.
    assert float((first > 0).float().mean()) == pytest.approx(0.75, abs=0.0084)


def test_dropout_does_nothing_in_evaluation_and_asks_for_a_generator_in_training() -> None:
    dropout = Dropout(0.5)
    values = torch.ones(4)

    with pytest.raises(ValueError, match="use_generator"):
        dropout(values)
    assert torch.equal(dropout.eval()(values), values)


@pytest.mark.parametrize("family", [GruLmSettings, TransformerLmSettings])
def test_a_network_with_dropout_trains_from_the_given_generator(
    family: type[GruLmSettings] | type[TransformerLmSettings],
) -> None:
    settings = family(vocabulary_size=30, dropout=0.5)
    network = network_of(settings).train()
    tokens = torch.arange(8).unsqueeze(0)

    use_generator(network, torch.Generator().manual_seed(1))
    first, _ = network.features(tokens, None)
    second, _ = network.features(tokens, None)
    use_generator(network, torch.Generator().manual_seed(1))
    again, _ = network.features(tokens, None)

    assert torch.equal(first, again)
    assert not torch.equal(first, second)
