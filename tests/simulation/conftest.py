from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from edge_client.descent.compute import prepare_compute
from models.text.vocabulary import shipped_vocabulary
from simulation.config.overrides import parse_override, with_setting
from simulation.config.simulation import SimulationConfig, config_from
from simulation.population.population import TextPopulation

VOCABULARY_SIZE = 50

TABLES: dict[str, Any] = {
    "seed": 1,
    "data": {"dataset": "manual", "partition": "users"},
    "vocabulary": {"name": "english-10k", "size": VOCABULARY_SIZE},
    "model": {"family": "gru_lm", "vocabulary_size": VOCABULARY_SIZE, "hidden_size": 8},
    "training": {
        "learning_rate": 1.0,
        "gradient_clipping_norm": 1.0,
        "batch_size": 2,
        "bptt_steps": 5,
    },
    "privacy": {"mode": "none", "clipping_norm": 5.0},
    "aggregation": {"rule": "attentive"},
    "rounds": {"cap": 4, "cohort_size": 3, "quorum": 2, "deadline_s": 60.0},
    "evaluation": {"kind": "public", "public_text": "valid"},
}

Tables = dict[str, Any]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Compute as a worker process does, and leave the next test what it expects."""
    yield from _with_one_thread()


@pytest.fixture(scope="module")
def one_thread_in_module() -> Iterator[None]:
    """Compute so in what a module makes once for all of its tests."""
    yield from _with_one_thread()


def _with_one_thread() -> Iterator[None]:
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    prepare_compute("cpu", threads=1)
    yield
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)


@pytest.fixture(scope="session")
def population() -> TextPopulation:
    """Return six clients whose texts count upwards from different words: much to learn."""

    def stream(first: int, tokens: int) -> torch.Tensor:
        return (torch.arange(tokens) + first) % (VOCABULARY_SIZE - 1) + 1

    return TextPopulation(
        vocabulary=shipped_vocabulary(VOCABULARY_SIZE),
        clients={f"device-{k:04}": stream(7 * k, 60 + 10 * k) for k in range(1, 7)},
        held_out={
            "valid": {"a/0": stream(3, 90), "b/0": stream(9, 40)},
            "test": {"a/0": stream(5, 80)},
        },
        typed=[[["the", "time"]]],
        notes=(),
    )


@pytest.fixture(scope="session")
def configured() -> Callable[..., tuple[SimulationConfig, Tables]]:
    """Return a small configuration and its tables, with some settings changed."""

    def configure(*settings: str) -> tuple[SimulationConfig, Tables]:
        tables = dict(TABLES)  # A test may change its own.
        for text in settings:
            override = parse_override(text)
            tables = with_setting(tables, override.path, override.values[0])
        return config_from(tables, "test"), tables

    return configure
