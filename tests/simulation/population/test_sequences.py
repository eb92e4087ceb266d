from typing import Any

import pytest
import torch

from models.tasks.sequence import SequencePairs
from server.config.federation import ConfigError
from simulation.config.overrides import parse_override, with_setting
from simulation.config.simulation import SimulationConfig, config_from, read_tables
from simulation.population.dealing import build_population
from simulation.population.population import Population, PopulationError

Tables = dict[str, Any]  # TOML values.


def configured(*settings: str) -> SimulationConfig:
    tables: Tables = read_tables("seq2seq-translate")
    for text in settings:
        override = parse_override(text)
        tables = with_setting(tables, override.path, override.values[0])
    return config_from(tables, "test")


def dealt(*settings: str) -> Population:
    small = ("data.client_count=3", "data.pairs_per_client=20", *settings)
    return build_population(configured(*small), None)


def pairs(population: Population) -> list[SequencePairs]:
    everybody = [*population.clients.values(), *population.own_test.values()]
    assert all(isinstance(own, SequencePairs) for own in everybody)
    return [own for own in everybody if isinstance(own, SequencePairs)]


def test_every_client_has_its_own_pairs_and_holds_out_a_quarter_as_many() -> None:
    population = dealt()

    assert list(population.clients) == ["device-0001", "device-0002", "device-0003"]
    assert [len(own) for own in pairs(population)] == [20, 20, 20, 5, 5, 5]
    # Between half of the longest length and all of it: 4, 5 or 6 symbols.
    lengths = {int(length) for own in pairs(population) for length in (own.sources != 0).sum(1)}
    assert lengths == {4, 5, 6}
    sources = [tuple(row) for own in pairs(population) for row in own.sources.tolist()]
    # Alike by chance: 75 * 74 / 2 couples, a ninth both of 4 symbols, 8^4 of those: 0.08.
    assert len(set(sources)) >= 73


def test_all_clients_share_one_rule_and_one_dictionary() -> None:
    dictionary: dict[int, int] = {}
    for own in pairs(dealt()):
        for source, target in zip(own.sources, own.targets, strict=True):
            for word, other in zip(source[source != 0], target[target != 0].flip(0), strict=True):
                assert dictionary.setdefault(int(word), int(other)) == int(other)
    for own in pairs(dealt("data.dataset=copy")):
        assert torch.equal(own.sources, own.targets)


def test_a_deal_depends_on_its_seed_alone() -> None:
    one, again, other = dealt(), dealt("seed=9"), dealt("data.seed=2")

    first = pairs(one)[0].sources
    assert torch.equal(first, pairs(again)[0].sources)
    assert not torch.equal(first, pairs(other)[0].sources)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("data.dataset=ptb", "must be one of copy, reverse, translate, got 'ptb'"),
        ('data={dataset="copy", client_count=3}', "sequences need data.pairs_per_client"),
        ('model={family="vit", class_count=3}', 'needs model.family = "seq2seq"'),
    ],
)
def test_data_that_are_no_sequences_are_refused(setting: str, says: str) -> None:
    with pytest.raises(PopulationError, match=says):
        build_population(configured(setting), None)


def test_sequences_are_dealt_alike_only() -> None:
    with pytest.raises(ConfigError, match=r'data\.partition must be one of iid .* got "groups"'):
        configured("data.partition=groups")


def test_nobody_trains_on_less_than_a_pair() -> None:
    with pytest.raises(ValueError, match="pairs_per_client must be >= 1, got 0"):
        configured("data.pairs_per_client=0")
