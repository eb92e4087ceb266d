"""A run whose clients train on a cluster, and what a cluster must have for it."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import simulation.runs.runner
from server.config.plans import make_plan
from server.releases.files import read_release
from simulation.config.simulation import SimulationConfig
from simulation.engines.choice import engine_on
from simulation.engines.cluster import Cluster, EngineError
from simulation.population.population import TextPopulation
from simulation.runs.runner import RunOptions, run_simulation
from simulation.workers.local import LocalWorkers
from simulation.workers.pool import WorkerPool
from tests.simulation.killed_runs import RunKilledError, StopsAfter

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray"), pytest.mark.timeout(600)]

Configured = Callable[..., tuple[SimulationConfig, dict[str, Any]]]
TRANSFORMER = (
    'model={family="transformer_lm", vocabulary_size=50, model_size=8, head_count=2, '
    "layer_count=1, feedforward_size=8, context_size=16}"
)


def test_a_run_that_needs_more_memory_than_a_node_has_says_how_much(
    configured: Configured, population: TextPopulation, joined: Cluster
) -> None:
    config, _ = configured()
    plan = make_plan(config, "0" * 32, vocabulary=population.vocabulary)
    # 112 MiB of words, and a node has 100.
    long = {"device-0001": torch.zeros(14 << 20, dtype=torch.int64)}

    with pytest.raises(EngineError, match=r"holds 100 MiB, and this run wants 113: .*memory 117"):
        WorkerPool(plan, long, worker_count=1, engine=engine_on(joined))


def test_a_cluster_with_too_few_processors_says_how_many_it_has(
    configured: Configured, population: TextPopulation, joined: Cluster
) -> None:
    config, _ = configured()
    plan = make_plan(config, "0" * 32, vocabulary=population.vocabulary)

    with pytest.raises(EngineError, match="has 2 processors, and 3 workers need one each"):
        WorkerPool(plan, population.clients, worker_count=3, engine=engine_on(joined))


def test_a_cluster_without_gpus_is_asked_for_none(
    configured: Configured, population: TextPopulation, joined: Cluster
) -> None:
    config, _ = configured()
    plan = make_plan(config, "0" * 32, vocabulary=population.vocabulary)
    engine = partial(engine_on(joined), device="cuda")

    with pytest.raises(EngineError, match="no node of the cluster has a GPU"):
        WorkerPool(plan, population.clients, worker_count=1, engine=engine)


def test_a_run_that_was_killed_here_and_on_the_cluster_ends_as_an_undisturbed_one(
    configured: Configured,
    population: TextPopulation,
    joined: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(simulation.runs.runner, "_CHECKPOINT_SECONDS", 0.0)
    config, tables = configured(TRANSFORMER, 'personalisation={method="fedtp"}', "rounds.cap=3")
    own = {
        name: (torch.arange(20) + int(text[-1])) % 49 + 1
        for name, text in population.clients.items()
    }
    owners = replace(population, own_test=own, held_out={"valid": {}, "test": {}})
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    final = run_simulation(config, tables, owners, whole, RunOptions())

    for engine in (LocalWorkers, engine_on(joined)):
        with pytest.raises(RunKilledError):
            # The round in which it is killed is not kept: one round is.
            options = RunOptions(reporter=StopsAfter(2), engine=engine)
            run_simulation(config, tables, owners, broken, options)
    resumed = run_simulation(config, tables, owners, broken, RunOptions())

    assert resumed == final
    releases = [read_release(folder / "releases" / "latest") for folder in (whole, broken)]
    assert releases[0].parameters.tobytes() == releases[1].parameters.tobytes()
    assert releases[0].personalisation == releases[1].personalisation
