"""Whole runs in which clients have something of their own: alike however they are run."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import simulation.runs.runner
from edge_client.training.local_round import LocalTrainer
from models.networks.flat_parameters import initial_parameters
from server.releases.files import read_release
from simulation.config.simulation import SimulationConfig
from simulation.figures.metrics import read_metrics
from simulation.population.population import TextPopulation
from simulation.rounds.federation import Federation
from simulation.runs.runner import RunOptions, run_simulation
from simulation.workers.pool import WorkerPool
from simulation.workers.state_shelf import StateShelf
from tests.simulation.here import HERE
from tests.simulation.killed_runs import RunKilledError, StopsAfter

Configured = Callable[..., tuple[SimulationConfig, dict[str, Any]]]
TIMES = {"round_s", "evaluation_s"}
TRANSFORMER = (
    'model={family="transformer_lm", vocabulary_size=50, model_size=8, head_count=2, '
    "layer_count=1, feedforward_size=8, context_size=16}"
)
UNTIED = 'model={family="gru_lm", vocabulary_size=50, hidden_size=8, tied=false}'
PLAIN = ('privacy={mode="none"}', 'aggregation={rule="mean"}')
METHODS = {
    "fedper": (UNTIED, 'personalisation={method="fedper"}'),
    "vanilla-attentive": (TRANSFORMER, 'personalisation={method="vanilla"}'),
    "pfedme": ('personalisation={method="pfedme"}',),
    "ditto": ('personalisation={method="ditto"}',),
    "local": ('personalisation={method="local"}', *PLAIN),
    "fedtp": (TRANSFORMER, 'personalisation={method="fedtp"}'),
    "pfedhn": ('personalisation={method="pfedhn"}', *PLAIN),
}


@pytest.fixture
def owners(population: TextPopulation) -> TextPopulation:
    """Return the six clients, five of which hold out the text that follows their own."""
    own = {
        name: (torch.arange(20) + int(stream[-1])) % 48 + 2
        for name, stream in population.clients.items()
    }
    own.pop("device-0006")
    return replace(population, own_test=own, held_out={"valid": {}, "test": {}})


@pytest.fixture(autouse=True)
def checkpoint_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation.runs.runner, "_CHECKPOINT_SECONDS", 0.0)


def without_times(folder: Path) -> list[dict[str, object]]:
    return [
        {name: value for name, value in row.items() if name not in TIMES}
        for row in read_metrics(folder)
    ]


def states(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted((folder / "states").glob("*/*.bin"))
    }


@pytest.mark.slow
@pytest.mark.parametrize("settings", METHODS.values(), ids=METHODS)
def test_a_run_is_the_same_bits_whatever_the_workers_and_the_stops(
    configured: Configured, owners: TextPopulation, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    config, tables = configured(*settings)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    final = run_simulation(config, tables, owners, whole, HERE)

    # Killed after round 1's and again after round 3's figures were written, before their
    # checkpoints.
    for rounds in (1, 3):
        with pytest.raises(RunKilledError):
            options = RunOptions(worker_count=2, reporter=StopsAfter(rounds))
            run_simulation(config, tables, owners, broken, options)
    resumed = run_simulation(config, tables, owners, broken, RunOptions(worker_count=3))

    assert resumed == final
    assert without_times(broken) == without_times(whole)
    assert states(broken) == states(whole)
    releases = [read_release(folder / "releases" / "latest") for folder in (whole, broken)]
    assert releases[0].parameters.tobytes() == releases[1].parameters.tobytes()
    assert releases[0].personalisation == releases[1].personalisation


@pytest.mark.slow
@pytest.mark.parametrize("settings", METHODS.values(), ids=METHODS)
def test_every_client_is_scored_on_its_own_text_with_its_own_model(
    configured: Configured, owners: TextPopulation, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    config, tables = configured(*settings, "rounds.cap=3")

    final = run_simulation(config, tables, owners, tmp_path, HERE)

    # Twenty targets of five clients each, also of those that were not among the three drawn.
    for name in ("accuracy", "top3_recall", "perplexity"):
        pooled, mean, worst = (
            float(final[f"{name}{suffix}"] or 0)
            for suffix in ("", "_clients_mean", "_clients_worst_decile")
        )
        if name == "perplexity":
            assert worst >= mean
        else:
            # All clients have as many targets.
            assert mean == pytest.approx(pooled)
            assert worst <= mean
    assert final["accuracy"] == final["test_top1_recall"]


@pytest.mark.slow
def test_a_personal_head_at_home_is_what_a_client_computes_by_itself(
    configured: Configured, owners: TextPopulation, tmp_path: Path
) -> None:
    config, tables = configured(*METHODS["fedper"], "rounds.cap=2", "rounds.cohort_size=6")
    run_simulation(config, tables, owners, tmp_path, RunOptions(worker_count=2))

    # The same two rounds by hand, for one client.
    plan = read_release(tmp_path / "releases" / "latest").plan
    trainer = LocalTrainer(plan)
    shelf = StateShelf(tmp_path / "again")
    with WorkerPool(plan, owners.clients, worker_count=1, states=shelf) as pool:
        federation = Federation(config, plan, list(owners.clients), pool)
        first = trainer.train(
            federation.parameters,
            owners.clients["device-0002"],
            round_number=1,
            client_name="device-0002",
        )
        federation.run_round()
        second = trainer.train(
            federation.parameters,
            owners.clients["device-0002"],
            round_number=2,
            client_name="device-0002",
            personal=first.personal,
        )
    assert second.personal is not None
    kept = (tmp_path / "states" / "device-0002" / "000002.bin").read_bytes()
    assert kept.endswith(second.personal.personal.numpy().tobytes())


def test_a_client_that_learns_by_itself_costs_no_bytes(
    configured: Configured, owners: TextPopulation, tmp_path: Path
) -> None:
    config, tables = configured(*METHODS["local"], "rounds.cap=2")

    final = run_simulation(config, tables, owners, tmp_path, HERE)

    assert (final["bytes_down"], final["bytes_up"]) == (0, 0)
    assert int(final["tokens"] or 0) > 0
    release = read_release(tmp_path / "releases" / "latest")
    assert release.parameters.shape == (0,)


def test_bytes_are_those_of_what_travels(
    configured: Configured, owners: TextPopulation, tmp_path: Path
) -> None:
    config, tables = configured("rounds.cap=2")

    final = run_simulation(config, tables, owners, tmp_path, HERE)

    # Three clients in each of two rounds, four bytes a parameter.
    whole = initial_parameters(config.model, 1)
    assert final["bytes_down"] == final["bytes_up"] == 6 * 4 * len(whole)


def test_a_returning_client_whose_state_was_damaged_is_named(
    configured: Configured, owners: TextPopulation, tmp_path: Path
) -> None:
    config, tables = configured(*METHODS["fedper"], "rounds.cohort_size=6", "rounds.quorum=6")
    with pytest.raises(RunKilledError):
        run_simulation(config, tables, owners, tmp_path, HERE._replace(reporter=StopsAfter(2)))
    newest = tmp_path / "states" / "device-0003" / "000001.bin"
    newest.write_bytes(newest.read_bytes()[:-1])

    with pytest.raises(RuntimeError, match=r"device-0003: .*does not fit this model and method"):
        run_simulation(config, tables, owners, tmp_path, HERE)
