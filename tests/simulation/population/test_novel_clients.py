from typing import Any

import pytest
import torch

from models.tasks.sequence import SequencePairs
from simulation.config.overrides import parse_override
from simulation.config.simulation import SimulationConfig, config_from, read_tables, with_settings
from simulation.population.dealing import build_population
from simulation.population.novel_clients import keep_novel_out
from simulation.population.population import Population, PopulationError, TextPopulation

Tables = dict[str, Any]  # TOML values.


def configured(preset: str, *settings: str) -> SimulationConfig:
    changed = with_settings(read_tables(preset), [parse_override(text) for text in settings])
    return config_from(changed, "test")


def sequences(*settings: str) -> Population:
    ten = ("data.client_count=10", "data.pairs_per_client=4", *settings)
    return build_population(configured("seq2seq-translate", *ten), None)


def sources(examples: object) -> torch.Tensor:
    assert isinstance(examples, SequencePairs)
    return examples.sources


def test_a_fifth_of_the_clients_is_kept_out_and_the_others_stay_as_they_were() -> None:
    everybody, split = sequences(), sequences("data.novel_share=0.2")

    assert len(split.novel) == 2
    assert sorted([*split.clients, *split.novel]) == list(everybody.clients)
    assert split.own_test.keys() == split.clients.keys()
    for name, client in split.novel.items():
        assert torch.equal(sources(client.train), sources(everybody.clients[name]))
        assert torch.equal(sources(client.test), sources(everybody.own_test[name]))
    for name, examples in split.clients.items():
        assert torch.equal(sources(examples), sources(everybody.clients[name]))
    # Workers are given everything by name: no novel client among it.
    assert not {name for name in split.named_examples() if name.split("/")[-1] in split.novel}


def test_who_is_novel_follows_from_the_seed_of_the_deal_alone() -> None:
    share = "data.novel_share=0.3"

    assert sequences(share).novel.keys() == sequences(share, "seed=5").novel.keys()
    drawn = {tuple(sequences(share, f"data.seed={seed}").novel) for seed in (1, 2, 3)}
    assert len(drawn) > 1


def test_what_novel_people_typed_is_not_scored(population: TextPopulation) -> None:
    own = {name: stream[:5] for name, stream in population.clients.items()}
    typed = {name: [["the"]] for name in own}
    data = configured("keyboard-tiny", "data.novel_share=0.5").data
    held = TextPopulation(
        vocabulary=population.vocabulary,
        clients=population.clients,
        own_test=own,
        own_typed=typed,
        held_out={"valid": {}, "test": {}},
        typed=list(typed.values()),
    )

    left = keep_novel_out(held, data)

    assert isinstance(left, TextPopulation)
    assert len(left.novel) == len(left.own_typed) == len(left.typed) == 3


def test_a_share_that_leaves_nobody_or_nothing_to_score_is_refused(
    population: TextPopulation,
) -> None:
    with pytest.raises(PopulationError, match="must leave a client to train, got 10"):
        sequences("data.novel_share=0.99")
    with pytest.raises(PopulationError, match="novel clients must hold out examples"):
        keep_novel_out(population, configured("keyboard-tiny", "data.novel_share=0.5").data)
    with pytest.raises(ValueError, match=r"novel_share must be in \[0, 1\), got 1.0"):
        sequences("data.novel_share=1.0")
