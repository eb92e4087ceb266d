"""What clients keep to themselves when an attempt at a round comes to nothing, as devices do."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import simulation.runs.runner
from edge_client.personalisation.state import PersonalState
from edge_client.training.local_round import LocalTrainer
from server.config.plans import make_plan
from server.machine.answers import Abort, Close
from simulation.config.simulation import SimulationConfig
from simulation.population.population import TextPopulation
from simulation.rounds.attacks import Attackers
from simulation.rounds.attendance import next_order
from simulation.rounds.federation import Federation
from simulation.runs.runner import RunOptions, run_simulation
from simulation.workers.pool import WorkerPool
from simulation.workers.state_shelf import StateShelf
from tests.simulation.killed_runs import RunKilledError, StopsAfter
from tests.simulation.runs.test_runner import (
    last_parameters,
    without_times,
)

Configured = Callable[..., tuple[SimulationConfig, dict[str, Any]]]
OWN_HEAD = (
    'model={family="gru_lm", vocabulary_size=50, hidden_size=8, tied=false}',
    'personalisation={method="fedper"}',
    "rounds.retry_limit=20",
)
TOO_FEW_OF_USE = ('attack={kind="nan", fraction=0.5}', "screening={}")
TOO_FEW_COME = ("data.absence_rate=0.5",)
COLLUDERS = ('attack={kind="little-is-enough", fraction=0.5, deviations=1.0}',)


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[Close | Abort]:
    """Note how every attempt ends, and whose updates were acknowledged in it."""
    noted: list[Close | Abort] = []

    def note(*args: Any, **named: Any) -> Close | Abort | None:
        order = next_order(*args, **named)
        if order is not None:
            noted.append(order)
        return order

    monkeypatch.setattr("simulation.rounds.federation.next_order", note)
    return noted


@pytest.mark.slow
@pytest.mark.parametrize("settings", [TOO_FEW_OF_USE, TOO_FEW_COME, COLLUDERS])
def test_clients_keep_what_each_acknowledged_update_left_them_with(
    configured: Configured,
    population: TextPopulation,
    tmp_path: Path,
    orders: list[Close | Abort],
    settings: tuple[str, ...],
) -> None:
    config, _ = configured(*OWN_HEAD, *settings)
    plan = make_plan(config, "0" * 32, vocabulary=population.vocabulary)
    names = list(population.clients)
    attackers = Attackers(config.attack, names, seed=config.seed) if config.attack else None
    shelf, received = StateShelf(tmp_path), []
    with WorkerPool(plan, population.clients, worker_count=1, states=shelf) as pool:
        federation = Federation(config, plan, names, pool, attackers=attackers)
        for _ in range(4):
            received.append(federation.parameters)
            federation.run_round()

    # By hand, as devices do: whoever is acknowledged goes on from there, whatever comes after it.
    trainer, kept = LocalTrainer(plan), dict[str, PersonalState | None]()
    for order in orders:
        for receipt in order.receipts:
            kept[receipt.client] = trainer.train(
                received[order.round_number - 1],
                population.clients[receipt.client],
                round_number=order.round_number,
                client_name=receipt.client,
                personal=kept.get(receipt.client),
            ).personal
    for name, state in kept.items():
        found = shelf.newest(name, 4)
        assert found is not None
        assert state is not None
        assert found.read_bytes().endswith(state.personal.numpy().tobytes())
    drawn = Counter(
        (order.round_number, receipt.client) for order in orders for receipt in order.receipts
    )
    assert settings is COLLUDERS or max(drawn.values()) > 1


@pytest.mark.slow
@pytest.mark.parametrize("settings", [TOO_FEW_OF_USE, TOO_FEW_COME])
def test_a_run_that_goes_on_repeats_the_attempts_that_came_to_nothing(
    configured: Configured,
    population: TextPopulation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: tuple[str, ...],
) -> None:
    monkeypatch.setattr(simulation.runs.runner, "_CHECKPOINT_SECONDS", 0.0)
    config, tables = configured(*OWN_HEAD, *settings)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run_simulation(config, tables, population, whole, RunOptions())

    for rounds in (1, 3):
        with pytest.raises(RunKilledError):
            options = RunOptions(reporter=StopsAfter(rounds))
            run_simulation(config, tables, population, broken, options)
    run_simulation(config, tables, population, broken, RunOptions(worker_count=2))

    assert without_times(broken) == without_times(whole)
    assert last_parameters(broken) == last_parameters(whole)
    states = [
        {path.relative_to(folder): path.read_bytes() for path in folder.glob("states/*/*.bin")}
        for folder in (whole, broken)
    ]
    assert states[0] == states[1]
