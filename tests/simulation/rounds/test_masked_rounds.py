from collections.abc import Callable

import pytest
import torch

from server.config.plans import make_plan
from simulation.config.simulation import SimulationConfig
from simulation.population.population import Population
from simulation.rounds.federation import Federation
from simulation.workers.pool import WorkerPool
from tests.masked_scene import repeating_trainer

Configured = Callable[..., tuple[SimulationConfig, dict[str, object]]]

MASKED = (
    'privacy={mode="masked", clipping_norm=5.0, noise_multiplier=0.01, delta=1e-3, '
    'epsilon_budget=1e9, coordinator_epsilon_budget=1e9, honest_share=1.0, adjacency="zero-out"}'
)


def parameters_after(
    config: SimulationConfig, population: Population, *, worker_count: int = 1, rounds: int = 2
) -> torch.Tensor:
    plan = make_plan(config, "0" * 32, vocabulary=population.vocabulary)
    with WorkerPool(
        plan, population.clients, worker_count=worker_count, trainer=repeating_trainer
    ) as pool:
        federation = Federation(config, plan, list(population.clients), pool)
        for _ in range(rounds):
            federation.run_round()
    return federation.parameters


def test_masked_rounds_end_in_the_same_bits_with_one_worker_and_two(
    configured: Configured, population: Population
) -> None:
    config, _ = configured(MASKED)

    one, two = (parameters_after(config, population, worker_count=count) for count in (1, 2))

    assert torch.equal(one, two)
