import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from edge_client.training.local_result import LocalResult
from edge_client.training.local_round import LocalTrainer
from models.networks.flat_parameters import initial_parameters
from models.plan.plan import Plan
from server.config.plans import make_plan
from simulation.config.simulation import SimulationConfig
from simulation.population.population import Population
from simulation.workers.engine import WorkerError
from simulation.workers.jobs import Trained
from simulation.workers.pool import WorkerPool

Configured = Callable[..., tuple[SimulationConfig, dict[str, object]]]


class Dying(LocalTrainer):
    """End the process instead of training."""

    def __init__(self, plan: Plan) -> None:
        pass

    def train(self, *args: object, **kwargs: object) -> LocalResult:
        os._exit(7)


class LeavingItsPipe(LocalTrainer):
    """End the process, whose end of the pipe another holds open for a minute."""

    def __init__(self, holder: Path, plan: Plan) -> None:
        self._holder = holder

    def train(self, *args: object, **kwargs: object) -> LocalResult:
        if (holder := os.fork()) == 0:
            time.sleep(60)
            os._exit(0)
        self._holder.write_text(str(holder))
        os._exit(7)


class Sleeping(LocalTrainer):
    """Train for a minute."""

    def __init__(self, plan: Plan) -> None:
        pass

    def train(self, *args: object, **kwargs: object) -> LocalResult:
        time.sleep(60)
        raise ValueError("nobody waited")


def plan_of(config: SimulationConfig, population: Population) -> Plan:
    return make_plan(config, "0" * 32, vocabulary=population.vocabulary)


def train_all(
    config: SimulationConfig, population: Population, *, worker_count: int
) -> list[Trained]:
    plan = plan_of(config, population)
    parameters = initial_parameters(plan.model, 1)
    with WorkerPool(plan, population.clients, worker_count=worker_count) as pool:
        cohort = list(enumerate(population.clients))
        return [
            result._replace(update=None if result.update is None else result.update.clone())
            for result in pool.train(parameters, cohort, round_number=3)
        ]


def test_results_are_the_same_bits_in_slot_order_whatever_the_worker_count(
    configured: Configured, population: Population
) -> None:
    config, _ = configured()

    alone, many = (train_all(config, population, worker_count=count) for count in (1, 4))

    assert [result.slot for result in many] == list(range(6))
    assert [result.client_name for result in many] == list(population.clients)
    for one, other in zip(alone, many, strict=True):
        assert one.update is not None
        assert other.update is not None
        assert torch.equal(one.update, other.update)
        assert one[3:] == other[3:]


def test_a_client_that_diverges_has_no_update(
    configured: Configured, population: Population
) -> None:
    config, _ = configured("training.learning_rate=1e37", "training.gradient_clipping_norm=1e30")

    results = train_all(config, population, worker_count=1)

    assert all(result.update is None for result in results)


@pytest.mark.slow
def test_a_client_without_usable_text_is_named(
    configured: Configured, population: Population
) -> None:
    config, _ = configured()
    plan = plan_of(config, population)
    text = {**population.clients, "device-0003": torch.tensor([5])}

    with WorkerPool(plan, text, worker_count=2) as pool:
        parameters = initial_parameters(plan.model, 1)
        with pytest.raises(WorkerError, match="device-0003: text must have at least 2 tokens"):
            list(pool.train(parameters, list(enumerate(text)), round_number=1))

        # The pool stays usable: nothing of the broken round is left in the pipes.
        results = list(pool.train(parameters, [(0, "device-0001")], round_number=1))
        assert [result.client_name for result in results] == ["device-0001"]


def test_a_worker_that_dies_is_told_and_not_waited_for(
    configured: Configured, population: Population
) -> None:
    config, _ = configured()
    plan = plan_of(config, population)

    with (
        WorkerPool(plan, population.clients, worker_count=1, trainer=Dying) as pool,
        pytest.raises(WorkerError, match="ended with status 7; if memory ran out"),
    ):
        list(pool.train(initial_parameters(plan.model, 1), [(0, "device-0001")], round_number=1))


def test_a_worker_that_dies_is_told_though_its_pipe_stays_open(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    config, _ = configured()
    plan = plan_of(config, population)
    holder = tmp_path / "holder"
    started = time.monotonic()

    with (
        WorkerPool(
            plan, population.clients, worker_count=1, trainer=partial(LeavingItsPipe, holder)
        ) as pool,
        pytest.raises(WorkerError, match="ended with status 7"),
    ):
        list(pool.train(initial_parameters(plan.model, 1), [(0, "device-0001")], round_number=1))

    os.kill(int(holder.read_text()), signal.SIGKILL)
    # The pipe would have ended with the other process.
    assert time.monotonic() - started < 60


def test_evaluation_counts_every_token_of_its_group(
    configured: Configured, population: Population
) -> None:
    config, _ = configured()
    plan = plan_of(config, population)

    with WorkerPool(plan, population.held_out["valid"], worker_count=2) as pool:
        counts = pool.evaluate(initial_parameters(plan.model, 1), [["a/0", "b/0"], ["b/0"]])

    # The valid split of the fixture holds 90 and 40 tokens.
    assert [count.token_count for count in counts] == [130, 40]


def test_a_pool_needs_a_worker(configured: Configured, population: Population) -> None:
    config, _ = configured()

    with pytest.raises(ValueError, match="worker_count must be >= 1, got 0"):
        WorkerPool(plan_of(config, population), population.clients, worker_count=0)


@pytest.fixture
def heeds_interrupts() -> Iterator[None]:
    """A shell starts what it runs in the background with interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_interrupts")
def test_an_interrupt_does_not_wait_for_the_clients_under_way(
    configured: Configured, population: Population
) -> None:
    config, _ = configured()
    plan = plan_of(config, population)
    started = time.monotonic()

    with (
        pytest.raises(KeyboardInterrupt),
        WorkerPool(plan, population.clients, worker_count=1, trainer=Sleeping) as pool,
    ):
        results = pool.train(
            initial_parameters(plan.model, 1), [(0, "device-0001")], round_number=1
        )
        main_thread = threading.main_thread().ident or 0
        threading.Timer(0.5, signal.pthread_kill, [main_thread, signal.SIGINT]).start()
        next(results)

    assert time.monotonic() - started < 60
    assert not multiprocessing.active_children()
