"""Simulated runs under a rule that looks back to earlier releases."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from server.closing.close import Closed, Closing, close_round
from server.closing.summing import Contribution
from simulation.config.simulation import SimulationConfig
from simulation.population.population import Population
from simulation.rounds.federation import Federation
from simulation.runs.runner import RunOptions, run_simulation
from tests.simulation.killed_runs import RunKilledError, StopsAfter
from tests.simulation.runs.test_runner import (
    last_parameters,
    without_times,
)

Configured = Callable[..., tuple[SimulationConfig, dict[str, Any]]]
BY_HISTORY = (
    "rounds={cap=12, cohort_size=6, quorum=5, deadline_s=60.0}",
    'aggregation={rule="trimmed-attentive", trim_by="history", trim_share=0.34, sybil_cosine=0.99}',
    'attack={kind="sign-flip", fraction=0.17}',
)


@pytest.mark.slow
def test_a_run_that_looks_back_repeats_and_goes_on_after_a_kill(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    config, tables = configured(*BY_HISTORY)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    final = run_simulation(config, tables, population, whole, RunOptions())

    for rounds in (1, 6):
        with pytest.raises(RunKilledError):
            options = RunOptions(reporter=StopsAfter(rounds))
            run_simulation(config, tables, population, broken, options)
    resumed = run_simulation(config, tables, population, broken, RunOptions())

    assert resumed == final
    assert last_parameters(broken) == last_parameters(whole)
    assert without_times(broken) == without_times(whole)
    # One of six attacks, in each of twelve rounds, and was seen at once.
    assert (final["attacks_sent"], final["attackers_weight"]) == (12, 0.0)


@pytest.mark.slow
def test_each_round_looks_back_to_the_model_of_nine_rounds_before_its_own(
    configured: Configured,
    population: Population,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, tables = configured(*BY_HISTORY)
    started_from: list[list[float]] = []
    looked_back_to: list[list[float] | None] = []

    def watched(parameters: Tensor, sent: Iterable[Contribution], closing: Closing) -> Closed:
        started_from.append(parameters.tolist())
        earlier = closing.earlier
        looked_back_to.append(None if earlier is None else earlier.tolist())
        return close_round(parameters, sent, closing)

    monkeypatch.setattr("simulation.rounds.federation.close_round", watched)
    run_simulation(config, tables, population, tmp_path, RunOptions())

    assert looked_back_to[0] is None
    assert looked_back_to[1:] == [started_from[max(0, number - 9)] for number in range(1, 12)]


@pytest.mark.slow
def test_the_ten_newest_releases_are_kept(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    config, tables = configured(*BY_HISTORY)

    final = run_simulation(config, tables, population, tmp_path, RunOptions())

    kept = {path.name for path in (tmp_path / "releases").iterdir() if path.name.isdigit()}
    best = f"{int(final['model_round'] or 0):06d}"
    assert kept == {f"{number:06d}" for number in range(3, 13)} | {best}


def test_a_federation_without_releases_cannot_look_back(configured: Configured) -> None:
    config, _ = configured(*BY_HISTORY)

    with pytest.raises(ValueError, match="a rule that looks back needs releases"):
        Federation(config, None, [], None)  # type: ignore[arg-type]
