"""Roles become clients, tested on the newest fifth of what they say."""

import json
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from models.text.alphabet import ALPHABET
from simulation.config.simulation import SimulationConfig, config_from
from simulation.population.deal_users import PartitionError
from simulation.population.dealing import build_population
from simulation.population.population import Population, PopulationError

TABLES: dict[str, Any] = {
    "seed": 1,
    "task": "next_character",
    "model": {"family": "char_lstm", "hidden_size": 4, "context_size": 8},
    "training": {"learning_rate": 0.1, "batch_size": 4},
    "privacy": {"mode": "none"},
    "aggregation": {"rule": "mean"},
    "rounds": {"cap": 1, "cohort_size": 1, "quorum": 1, "deadline_s": 60.0},
}


DATA = {"dataset": "shakespeare", "partition": "users"}
ASKING: dict[str, Any] = {
    "privacy": {
        "mode": "central",
        "clipping_norm": 1.0,
        "noise_multiplier": 1.0,
        "delta": 1e-3,
        "epsilon_budget": 100.0,
        "adjacency": "zero-out",
    },
    "aggregation": {"rule": "mean", "weighting": "equal"},
    "evaluation": {
        "kind": "devices",
        "cohort_size": 1,
        "noise": {"noise_multiplier": 1.0, "token_cap": 50, "loss_cap": 8.0},
    },
}


def configured(**data: object) -> SimulationConfig:
    return config_from({**TABLES, "data": {**DATA, **data}}, "test")


@pytest.fixture
def plays(tmp_path: Path) -> Path:
    roles = {"p/ROMEO": "0123456789", "p/JULIET": "abcdefghijklmno", "p/MAB": "xyz"}
    with (tmp_path / "roles.jsonl").open("w") as lines:
        for user, text in roles.items():
            lines.write(json.dumps({"user": user, "speeches": [[1, [text]]]}) + "\n")
    return tmp_path


def decoded(numbers: Tensor) -> str:
    return "".join(ALPHABET[number] for number in numbers.tolist())


def texts(population: Population) -> dict[str, tuple[str, str]]:
    """Return what each client trains on and is tested on."""
    read = {}
    for name, own in population.clients.items():
        test = population.own_test.get(name)
        assert isinstance(own, Tensor)
        assert test is None or isinstance(test, Tensor)
        read[name] = (
            decoded(own),
            "" if test is None else decoded(test),
        )
    return read


def test_roles_that_are_asked_on_the_way_are_tested_on_their_newest_tenth(tmp_path: Path) -> None:
    text = "abcdefghijklmnopqrst"
    row = json.dumps({"user": "p/ROMEO", "speeches": [[1, [text]]]})
    (tmp_path / "roles.jsonl").write_text(row + "\n")

    population = build_population(config_from({**TABLES, **ASKING, "data": DATA}, "test"), tmp_path)

    assert texts(population) == {"device-0001": ("abcdefghijklmnop", "st")}
    asked = population.own_valid["device-0001"]
    assert isinstance(asked, Tensor)
    assert decoded(asked) == "qr"


def test_each_role_trains_on_its_first_four_fifths(plays: Path) -> None:
    population = build_population(configured(), plays)

    # Mab's last fifth is one letter, of which nothing could be scored.
    assert texts(population) == {
        "device-0001": ("abcdefghijkl", "mno"),
        "device-0002": ("xy", ""),
        "device-0003": ("01234567", "89"),
    }
    assert population.partition is not None
    assert [client.owner for client in population.partition.clients] == [
        "p/JULIET",
        "p/MAB",
        "p/ROMEO",
    ]
    assert population.partition.unit == "characters"


def test_who_says_little_is_left_out_and_the_note_says_how_many(plays: Path) -> None:
    population = build_population(configured(least_tokens=8), plays)

    assert len(population.clients) == 2
    assert list(population.notes) == ["1 users with little text were left out"]
    with pytest.raises(PopulationError, match="no client has 50 characters"):
        build_population(configured(least_tokens=50), plays)


def test_the_most_talkative_are_kept(plays: Path) -> None:
    population = build_population(configured(client_count=1), plays)

    assert texts(population) == {"device-0001": ("abcdefghijkl", "mno")}
    with pytest.raises(PartitionError, match="users must be >= 4"):
        build_population(configured(client_count=4), plays)
