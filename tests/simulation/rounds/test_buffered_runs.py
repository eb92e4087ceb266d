"""Whole runs in buffered rounds: as by hand, and alike however they are run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from edge_client.training.local_round import LocalTrainer
from models.networks.flat_parameters import initial_parameters
from server.closing.close import close_round
from server.closing.summing import Contribution
from server.config.federation import ConfigError, make_plan
from server.machine.answers import Close
from server.machine.buffered import BufferedMachine
from simulation.config.simulation import SimulationConfig
from simulation.figures.metrics import read_metrics
from simulation.population.population import Population
from simulation.rounds.arrivals import BufferedArrivals, Devices
from simulation.rounds.device_speeds import device_seconds
from simulation.rounds.federation import Federation
from simulation.rounds.participation import SeededSource
from simulation.runs.runner import RunOptions, run_simulation
from simulation.workers.pool import WorkerPool
from tests.simulation.runs.test_runner import (
    RunKilledError,
    StopsAfter,
    last_parameters,
    without_times,
)

Configured = Callable[..., tuple[SimulationConfig, dict[str, Any]]]
BUFFERED = (
    'rounds={cap=6, selection="first-come", cohort_size=2, quorum=2, deadline_s=60.0, '
    "buffered={concurrency=5, max_staleness=2}}",
    "speeds={slowest=8.0, examples_per_s=100.0}",
)


def seconds_of(config: SimulationConfig, population: Population) -> dict[str, float]:
    assert config.speeds is not None
    return device_seconds(config.speeds, population.clients, local_epochs=1, seed=config.seed)


def test_rounds_are_what_devices_and_coordinator_compute_one_by_one(
    configured: Configured, population: Population
) -> None:
    config, _ = configured(*BUFFERED)
    plan = make_plan(config, "0" * 32, vocabulary=population.vocabulary)
    names, seconds = list(population.clients), seconds_of(config, population)
    with WorkerPool(plan, population.clients, worker_count=1) as pool:
        federation = Federation(config, plan, names, pool, seconds=seconds)
        figures = [federation.run_round() for _ in range(5)]

    # The same by hand: who comes when, then every update from the release it was begun on.
    source = SeededSource(config.seed)
    machine = BufferedMachine(config.rounds, source)
    coming = BufferedArrivals(machine, source, Devices(names=names, seconds=seconds), config.rounds)
    releases = [initial_parameters(config.model, config.seed)]
    stalenesses = []
    for round_number in range(1, 6):
        source.start_round(round_number)
        order = coming.next_order(names)
        assert isinstance(order, Close)
        contributions = []
        for place, receipt in enumerate(order.receipts):
            result = LocalTrainer(plan).train(
                releases[round_number - 1 - receipt.staleness],
                population.clients[receipt.client],
                round_number=round_number - receipt.staleness,
                client_name=receipt.client,
            )
            worth = (1 + receipt.staleness) ** -0.5
            contributions.append(
                Contribution(place, result.update, result.example_count, receipt.client, worth)
            )
            stalenesses.append(receipt.staleness)
        closed = close_round(
            releases[-1],
            contributions,
            schema=config.schema,
            aggregation=config.aggregation,
            privacy=config.privacy,
            slot_count=2,
            generator=torch.Generator(),
        )
        releases.append(closed.parameters)
        machine.released()
    assert torch.equal(federation.parameters, releases[-1])
    assert max(stalenesses) > 0
    assert figures[-1]["clock_s"] == coming.now


def test_a_run_that_was_killed_ends_as_an_undisturbed_one(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    config, tables = configured(
        *BUFFERED,
        "model.tied=false",
        'personalisation={method="fedper"}',
    )
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    final = run_simulation(config, tables, population, whole, RunOptions())

    for rounds in (1, 3):
        with pytest.raises(RunKilledError):
            options = RunOptions(reporter=StopsAfter(rounds))
            run_simulation(config, tables, population, broken, options)
    resumed = run_simulation(config, tables, population, broken, RunOptions(worker_count=2))

    assert resumed == final
    assert last_parameters(broken) == last_parameters(whole)
    assert without_times(broken) == without_times(whole)
    rows = read_metrics(whole)
    clock = [float(row["clock_s"] or 0) for row in rows]
    assert clock == sorted(clock)
    assert any(float(row["mean_staleness"] or 0) > 0 for row in rows)


def test_a_round_whose_updates_are_of_no_use_is_repeated_also_when_it_was_killed(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    config, tables = configured(*BUFFERED, 'attack={kind="nan", fraction=0.2}', "seed=7")
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    final = run_simulation(config, tables, population, whole, RunOptions())

    with pytest.raises(RunKilledError):
        run_simulation(config, tables, population, broken, RunOptions(reporter=StopsAfter(4)))
    resumed = run_simulation(config, tables, population, broken, RunOptions())

    rows = read_metrics(whole)
    # Both places of a release are filled, with what no attacker sent.
    assert [row["contributions"] for row in rows] == [2] * 6
    assert sum(int(row["failed_attempts"] or 0) for row in rows[:4]) > 0
    assert resumed == final
    assert last_parameters(broken) == last_parameters(whole)
    assert without_times(broken) == without_times(whole)


def test_buffered_rounds_take_less_time_than_those_that_wait_for_the_slowest(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    ends = {}
    for name, settings in {
        "buffered": BUFFERED,
        "synchronous": (BUFFERED[1], "rounds.cohort_size=2", "rounds.cap=6"),
    }.items():
        config, tables = configured(*settings)
        run_simulation(config, tables, population, tmp_path / name, RunOptions())
        rows = read_metrics(tmp_path / name)
        assert [row["contributions"] for row in rows] == [2] * 6
        ends[name] = float(rows[-1]["clock_s"] or 0)

    assert ends["buffered"] < ends["synchronous"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ('personalisation={method="pfedhn"}', 'aggregation={rule="mean"}'),
            r"rounds\.buffered must be absent where a hypernetwork generates",
        ),
        (
            (
                'model={family="transformer_lm", vocabulary_size=50, model_size=8, head_count=2, '
                "layer_count=2, feedforward_size=8, context_size=16}",
                'growth={target_layer_count=2, stage_count=2, round_count=4, start="random"}',
            ),
            r"growth must be absent with rounds\.buffered",
        ),
    ],
)
def test_what_has_no_meaning_for_a_stale_update_is_refused(
    configured: Configured, settings: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        configured(*BUFFERED, 'privacy={mode="none", clipping_norm=5.0}', *settings)
