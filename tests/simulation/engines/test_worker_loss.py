"""Workers and nodes that are lost cost time, and no bit."""

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import simulation.engines.ray_workers
from benchmarks.parts.two_nodes import TwoNodes
from edge_client.training.local_result import LocalResult
from edge_client.training.local_round import LocalTrainer
from models.networks.flat_parameters import initial_parameters, parameters_sha256
from models.plan.plan import Plan
from server.config.plans import make_plan
from simulation.config.simulation import SimulationConfig
from simulation.engines.choice import engine_on
from simulation.engines.cluster import Cluster
from simulation.population.population import TextPopulation
from simulation.rounds.federation import Federation
from simulation.workers.engine import Engine, WorkerError
from simulation.workers.jobs import TrainerFactory
from simulation.workers.local import LocalWorkers
from simulation.workers.pool import WorkerPool
from simulation.workers.state_shelf import StateShelf
from tests.masked_scene import repeating_trainer

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray"), pytest.mark.timeout(600)]

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
GROWING = (
    'model={family="transformer_lm", vocabulary_size=50, model_size=8, head_count=2, '
    "layer_count=2, feedforward_size=8, context_size=16}",
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


@pytest.mark.papers
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


@pytest.mark.papers
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
