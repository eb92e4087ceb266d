"""A pool on a cluster of two nodes gives the bits of a pool on this machine, whatever is lost."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import simulation.engines.cluster
import simulation.engines.ray_workers
import simulation.runs.runner
from benchmarks.parts.two_nodes import TwoNodes
from edge_client.training.local_result import LocalResult
from edge_client.training.local_round import LocalTrainer
from models.networks.flat_parameters import initial_parameters, parameters_sha256
from models.plan.plan import Plan
from server.config.plans import make_plan
from server.releases.files import read_release
from simulation.config.simulation import SimulationConfig
from simulation.engines.choice import engine_on
from simulation.engines.cluster import Cluster, EngineError, ray_cluster
from simulation.engines.installed import installed
from simulation.population.population import TextPopulation
from simulation.rounds.federation import Federation
from simulation.runs.runner import RunOptions, run_simulation
from simulation.workers.engine import Engine, WorkerError
from simulation.workers.jobs import TrainerFactory
from simulation.workers.local import LocalWorkers
from simulation.workers.pool import WorkerPool
from simulation.workers.state_shelf import StateShelf
from tests.masked_scene import repeating_trainer
from tests.simulation.killed_runs import RunKilledError, StopsAfter

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]

Configured = Callable[..., tuple[SimulationConfig, dict[str, Any]]]
KEPT = (
    'model={family="gru_lm", vocabulary_size=50, hidden_size=8, tied=false}',
    'personalisation={method="fedper"}',
    "training.optimiser=adam",
    "training.optimiser_state=kept",
)
MASKED = (
    'privacy={mode="masked", clipping_norm=5.0, noise_multiplier=0.01, delta=1e-3, '
    'epsilon_budget=1e9, coordinator_epsilon_budget=1e9, honest_share=1.0, adjacency="zero-out"}'
)
TRANSFORMER = (
    'model={family="transformer_lm", vocabulary_size=50, model_size=8, head_count=2, '
    "layer_count=1, feedforward_size=8, context_size=16}"
)
GROWING = (
    TRANSFORMER.replace("layer_count=1", "layer_count=2"),
    "growth={target_layer_count=2, stage_count=2, round_count=2}",
)


class LosesANode(LocalTrainer):
    """In round 2, kill the node that this runs on; on another node, wait for that first."""

    def __init__(self, plan: Plan, *, victim: str, trace: Path) -> None:
        super().__init__(plan, seeded=True)
        self._victim = victim
        self._trace = trace

    def train(self, *args: Any, round_number: int, **kwargs: Any) -> LocalResult:
        if round_number == 2 and not self._trace.exists():
            import ray

            if ray.get_runtime_context().get_node_id() == self._victim:
                self._trace.touch()
                os.kill(os.getppid(), signal.SIGKILL)
                os._exit(7)
            # The node is lost while it has work, however long its worker takes to start.
            while not self._trace.exists():
                time.sleep(0.05)
        return super().train(*args, round_number=round_number, **kwargs)


class DiesOnce(LocalTrainer):
    """End the process in the middle of the first client's training, but only once."""

    def __init__(self, plan: Plan, *, trace: Path) -> None:
        super().__init__(plan, seeded=True, keys=repeating_trainer.keywords["keys"])
        self._trace = trace

    def train(self, *args: Any, **kwargs: Any) -> LocalResult:
        if not self._trace.exists():
            self._trace.touch()
            os._exit(7)
        return super().train(*args, **kwargs)


class Dies(LocalTrainer):
    """End the process instead of training."""

    def train(self, *args: object, **kwargs: object) -> LocalResult:
        os._exit(7)


def digests(
    config: SimulationConfig,
    population: TextPopulation,
    engine: Engine,
    folder: Path,
    *,
    trainer: TrainerFactory | None = None,
    rounds: int = 3,
) -> list[bytes]:
    """Return the digest of each round's model, and of all that clients keep after the last."""
    plan = make_plan(config, "0" * 32, vocabulary=population.vocabulary)
    with WorkerPool(
        plan,
        population.clients,
        worker_count=2,
        trainer=trainer,
        states=StateShelf(folder / "states"),
        optimisers=StateShelf(folder / "optimisers"),
        engine=engine,
    ) as pool:
        federation = Federation(config, plan, list(population.clients), pool)
        found = []
        for _ in range(rounds):
            federation.run_round()
            found.append(parameters_sha256(federation.parameters))
    kept = [path.read_bytes() for path in sorted(folder.rglob("*.bin"))]
    return [*found, *kept]


def test_a_node_with_other_software_is_refused_by_its_name(
    nodes: TwoNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = installed()
    here = {**there, "sotto": "9.9"}
    monkeypatch.setattr(simulation.engines.cluster, "installed", lambda: here)

    with (
        pytest.raises(EngineError) as refused,
        ray_cluster(nodes.address),
    ):
        pass

    line = f"node {there['host']} differs from this machine: sotto {there['sotto']} there, 9.9 here"
    assert line in str(refused.value)


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


def test_a_worker_that_dies_is_replaced_and_the_bits_stay(
    configured: Configured, population: TextPopulation, joined: Cluster, tmp_path: Path
) -> None:
    config, _ = configured(MASKED, *GROWING)
    here = digests(
        config, population, LocalWorkers, tmp_path / "1", trainer=repeating_trainer, rounds=2
    )

    dying = partial(DiesOnce, trace=tmp_path / "died")
    there = digests(config, population, engine_on(joined), tmp_path / "2", trainer=dying, rounds=2)

    assert (tmp_path / "died").exists()
    assert there == here


def test_a_client_that_ends_every_worker_is_named(
    configured: Configured,
    population: TextPopulation,
    joined: Cluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(simulation.engines.ray_workers, "_MOST_LOSSES", 1)
    config, _ = configured()
    plan = make_plan(config, "0" * 32, vocabulary=population.vocabulary)

    with (
        WorkerPool(
            plan, population.clients, worker_count=1, trainer=Dies, engine=engine_on(joined)
        ) as pool,
        pytest.raises(WorkerError, match="device-0001: 1 workers ended while they had it"),
    ):
        list(pool.train(initial_parameters(plan.model, 1), [(0, "device-0001")], round_number=1))


def test_a_run_that_was_killed_here_and_on_the_cluster_ends_as_an_undisturbed_one(
    configured: Configured,
    population: TextPopulation,
    joined: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(simulation.runs.runner, "_CHECKPOINT_SECONDS", 0.0)
    config, tables = configured(TRANSFORMER, 'personalisation={method="fedtp"}')
    own = {
        name: (torch.arange(20) + int(text[-1])) % 49 + 1
        for name, text in population.clients.items()
    }
    owners = replace(population, own_test=own, held_out={"valid": {}, "test": {}})
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    final = run_simulation(config, tables, owners, whole, RunOptions())

    for engine, rounds in ((LocalWorkers, 1), (engine_on(joined), 2)):
        with pytest.raises(RunKilledError):
            options = RunOptions(worker_count=2, reporter=StopsAfter(rounds), engine=engine)
            run_simulation(config, tables, owners, broken, options)
    resumed = run_simulation(config, tables, owners, broken, RunOptions())

    assert resumed == final
    releases = [read_release(folder / "releases" / "latest") for folder in (whole, broken)]
    assert releases[0].parameters.tobytes() == releases[1].parameters.tobytes()
    assert releases[0].personalisation == releases[1].personalisation


def test_a_node_that_is_killed_in_mid_round_costs_no_bit_of_model_or_personal_states(
    configured: Configured,
    population: TextPopulation,
    nodes: TwoNodes,
    joined: Cluster,
    tmp_path: Path,
) -> None:
    config, _ = configured(*KEPT)
    here = digests(config, population, LocalWorkers, tmp_path / "here")

    losing = partial(LosesANode, victim=nodes.second, trace=tmp_path / "killed")
    there = digests(config, population, engine_on(joined), tmp_path / "there", trainer=losing)

    assert not nodes.second_is_alive
    # Three models, and what six clients kept of themselves and of their optimisers.
    assert len(here) > 3
    assert there == here
