"""One worker in the caller's process ends in the bits of worker processes."""

from collections.abc import Callable

import pytest
import torch

from models.networks.flat_parameters import initial_parameters
from server.config.plans import make_plan
from simulation.config.simulation import SimulationConfig
from simulation.population.population import TextPopulation
from simulation.workers.engine import Engine, WorkerError
from simulation.workers.jobs import Trained
from simulation.workers.local import LocalWorkers
from simulation.workers.own_process import OwnProcess
from simulation.workers.pool import WorkerPool

Configured = Callable[..., tuple[SimulationConfig, dict[str, object]]]


def _train(config: SimulationConfig, population: TextPopulation, engine: Engine) -> list[Trained]:
    plan = make_plan(config, "0" * 32, vocabulary=population.vocabulary)
    with WorkerPool(plan, population.clients, worker_count=1, engine=engine) as pool:
        cohort = list(enumerate(population.clients))
        parameters = initial_parameters(plan.model, 1)
        return [
            result._replace(update=None if result.update is None else result.update.clone())
            for result in pool.train(parameters, cohort, round_number=3)
        ]


def test_the_callers_process_trains_to_the_bits_of_a_worker_process(
    configured: Configured, population: TextPopulation
) -> None:
    config, _ = configured()

    ours = _train(config, population, OwnProcess)
    theirs = _train(config, population, LocalWorkers)

    for one, other in zip(ours, theirs, strict=True):
        assert one.update is not None
        assert other.update is not None
        assert torch.equal(one.update, other.update)
        assert one._replace(update=None) == other._replace(update=None)


def test_a_client_without_usable_text_is_named_and_the_pool_goes_on(
    configured: Configured, population: TextPopulation
) -> None:
    config, _ = configured()
    plan = make_plan(config, "0" * 32, vocabulary=population.vocabulary)
    text = {**population.clients, "device-0003": torch.tensor([5])}

    with WorkerPool(plan, text, worker_count=1, engine=OwnProcess) as pool:
        parameters = initial_parameters(plan.model, 1)
        with pytest.raises(WorkerError, match="device-0003: text must have at least 2 tokens"):
            list(pool.train(parameters, list(enumerate(text)), round_number=1))

        results = list(pool.train(parameters, [(0, "device-0001")], round_number=1))
        assert [result.client_name for result in results] == ["device-0001"]


def test_a_client_that_diverges_has_no_update(
    configured: Configured, population: TextPopulation
) -> None:
    config, _ = configured("training.learning_rate=1e37", "training.gradient_clipping_norm=1e30")

    assert all(one.update is None for one in _train(config, population, OwnProcess))


def test_more_than_one_worker_is_refused(
    configured: Configured, population: TextPopulation
) -> None:
    config, _ = configured()
    plan = make_plan(config, "0" * 32, vocabulary=population.vocabulary)

    with pytest.raises(ValueError, match="worker_count must be 1 in one process, got 2"):
        WorkerPool(plan, population.clients, worker_count=2, engine=OwnProcess)
