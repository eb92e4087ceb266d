import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from edge_client.training.local_result import LocalResult
from edge_client.training.local_round import LocalTrainer
from models.networks.flat_parameters import initial_parameters
from models.plan.plan import Plan
from models.settings.model import schema_of
from server.closing.close import Closing, close_round
from server.closing.summing import Contribution
from server.config.plans import make_plan
from simulation.config.simulation import SimulationConfig
from simulation.population.population import Population
from simulation.rounds.attendance import SimulationError
from simulation.rounds.federation import Federation
from simulation.rounds.participation import SeededSource
from simulation.workers.pool import WorkerPool

Configured = Callable[..., tuple[SimulationConfig, dict[str, object]]]


def federation_of(config: SimulationConfig, population: Population, pool: WorkerPool) -> Federation:
    plan = make_plan(config, "0" * 32, vocabulary=population.vocabulary)
    return Federation(config, plan, list(population.clients), pool)


def pool_of(config: SimulationConfig, population: Population) -> WorkerPool:
    plan = make_plan(config, "0" * 32, vocabulary=population.vocabulary)
    return WorkerPool(plan, population.clients, worker_count=1)


def test_a_round_is_what_the_devices_and_the_coordinator_compute_one_by_one(
    configured: Configured, population: Population
) -> None:
    config, _ = configured(
        'privacy={mode="paper", randomisation_magnitude=0.01, clipping_norm=5.0}'
    )
    plan = make_plan(config, "0" * 32, vocabulary=population.vocabulary)
    with WorkerPool(plan, population.clients, worker_count=2) as pool:
        federation = Federation(config, plan, list(population.clients), pool)
        federation.run_round()

    # The same round by hand: draw three, sort them into slots, train each, close.
    source = SeededSource(config.seed)
    source.start_round(1)
    received = initial_parameters(config.model, config.seed)
    contributions = []
    for slot, name in enumerate(sorted(source.choose(sorted(population.clients), 3))):
        examples = population.clients[name]
        result = LocalTrainer(plan, seeded=True).train(
            received, examples, round_number=1, client_name=name
        )
        contributions.append(Contribution(slot, result.update, result.example_count, name))
    closed = close_round(
        received,
        contributions,
        Closing(
            schema=schema_of(plan.model),
            aggregation=config.aggregation,
            privacy=config.privacy,
            slot_count=3,
            generator=torch.Generator(),
        ),
    )
    assert torch.equal(federation.parameters, closed.parameters)


def test_a_cap_limits_what_a_client_weighs_and_not_what_was_trained(
    configured: Configured, population: Population
) -> None:
    tokens, parameters = [], []
    for cap in (1_000_000, 3):
        config, _ = configured(
            'aggregation={rule="mean"}', 'privacy={mode="none"}', f"training.example_cap={cap}"
        )
        with pool_of(config, population) as pool:
            federation = federation_of(config, population, pool)
            tokens.append(federation.run_round()["tokens"])
            parameters.append(federation.parameters)

    assert tokens[0] == tokens[1]
    # Capped at three tokens all three weigh the same.
    assert not torch.equal(*parameters)


def test_a_client_that_is_away_leaves_its_slot_empty(
    configured: Configured, population: Population
) -> None:
    config, _ = configured("data.absence_rate=0.3", "rounds.cohort_size=6", "rounds.quorum=1")
    with pool_of(config, population) as pool:
        federation = federation_of(config, population, pool)

        rounds = [federation.run_round() for _ in range(4)]

    # 24 draws at 0.3: none or all away has a chance below 2e-4, and the seed is fixed.
    counts = [int(figures["contributions"] or 0) for figures in rounds]
    assert all(1 <= count <= 6 for count in counts)
    assert sum(counts) < 24
    assert [figures["cohort"] for figures in rounds] == [6, 6, 6, 6]


def test_a_round_below_its_quorum_is_tried_again_and_given_up(
    configured: Configured, population: Population
) -> None:
    config, _ = configured("data.absence_rate=0.99", "rounds.retry_limit=2", "rounds.quorum=3")

    with (
        pool_of(config, population) as pool,
        pytest.raises(SimulationError, match="round 1 was given up after 3 attempts"),
    ):
        federation_of(config, population, pool).run_round()


class DrawsNothingHalfTheTime(LocalTrainer):
    """Train as ever, and say of every second client that DP-SGD drew none of its sentences."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._count = 0

    def train(self, *arguments: Any, **options: Any) -> LocalResult:
        self._count += 1
        trained = super().train(*arguments, **options)
        return replace(trained, mean_loss=math.nan if self._count % 2 else 2.5)


@pytest.mark.slow
@pytest.mark.parametrize(("cohort_size", "train_loss"), [(1, None), (3, 2.5)])
def test_the_loss_of_a_round_is_that_of_the_clients_who_have_one(
    configured: Configured, population: Population, cohort_size: int, train_loss: float | None
) -> None:
    config, _ = configured(f"rounds.cohort_size={cohort_size}", "rounds.quorum=1")
    plan = make_plan(config, "0" * 32, vocabulary=population.vocabulary)
    with WorkerPool(
        plan, population.clients, worker_count=1, trainer=DrawsNothingHalfTheTime
    ) as pool:
        figures = Federation(config, plan, list(population.clients), pool).run_round()

    assert figures["train_loss"] == train_loss


def test_a_run_in_which_everybody_diverges_says_what_to_lower(
    configured: Configured, population: Population
) -> None:
    config, _ = configured("training.learning_rate=1e37", "training.gradient_clipping_norm=1e30")

    with (
        pool_of(config, population) as pool,
        pytest.raises(SimulationError, match=r"clients diverged; lower training\.learning_rate"),
    ):
        federation_of(config, population, pool).run_round()


def test_a_population_smaller_than_the_cohort_is_refused(
    configured: Configured, population: Population
) -> None:
    config, _ = configured("rounds.cohort_size=7")

    told = r"round 1 cannot open: rounds.cohort_size must be <= the 6 clients .*, got 7"
    with pool_of(config, population) as pool, pytest.raises(SimulationError, match=told):
        federation_of(config, population, pool).run_round()


def test_first_come_takes_the_first_updates_of_a_larger_cohort(
    configured: Configured, population: Population
) -> None:
    config, _ = configured('rounds.selection="first-come"', "rounds.over_selection=1.9")
    with pool_of(config, population) as pool:
        figures = federation_of(config, population, pool).run_round()

    assert figures["contributions"] == 3
