"""Simulated runs under a rule that looks back to earlier releases."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from torch import Tensor

from server.closing.close import Closed, Closing, close_round
from server.closing.summing import Contribution
from simulation.config.simulation import SimulationConfig
from simulation.figures.metrics import Figures
from simulation.population.population import Population
from simulation.rounds.federation import Federation
from simulation.runs.runner import RunOptions, run_simulation
from tests.simulation.here import HERE
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


class WatchedRun(NamedTuple):
    """A run that nothing disturbed, and what the rule was given in each of its rounds."""

    folder: Path
    final: Figures
    started_from: list[list[float]]
    looked_back_to: list[list[float] | None]


@pytest.fixture(scope="module")
def whole(
    one_thread_in_module: None,
    configured: Configured,
    population: Population,
    tmp_path_factory: pytest.TempPathFactory,
) -> WatchedRun:
    config, tables = configured(*BY_HISTORY)
    started_from: list[list[float]] = []
    looked_back_to: list[list[float] | None] = []

    def watched(parameters: Tensor, sent: Iterable[Contribution], closing: Closing) -> Closed:
        started_from.append(parameters.tolist())
        earlier = closing.earlier
        looked_back_to.append(None if earlier is None else earlier.tolist())
        return close_round(parameters, sent, closing)

    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("simulation.rounds.federation.close_round", watched)
        final = run_simulation(config, tables, population, folder, HERE)
    return WatchedRun(folder, final, started_from, looked_back_to)


@pytest.mark.slow
def test_a_run_that_looks_back_repeats_and_goes_on_after_a_kill(
    configured: Configured, population: Population, whole: WatchedRun, tmp_path: Path
) -> None:
    config, tables = configured(*BY_HISTORY)

    for rounds in (1, 6):
        with pytest.raises(RunKilledError):
            options = HERE._replace(reporter=StopsAfter(rounds))
            run_simulation(config, tables, population, tmp_path, options)
    resumed = run_simulation(config, tables, population, tmp_path, RunOptions())

    assert resumed == whole.final
    assert last_parameters(tmp_path) == last_parameters(whole.folder)
    assert without_times(tmp_path) == without_times(whole.folder)
    # One of six attacks, in each of twelve rounds, and was seen at once.
    assert (whole.final["attacks_sent"], whole.final["attackers_weight"]) == (12, 0.0)


@pytest.mark.slow
def test_each_round_looks_back_to_the_model_of_nine_rounds_before_its_own(
    whole: WatchedRun,
) -> None:
    assert whole.looked_back_to[0] is None
    assert whole.looked_back_to[1:] == [
        whole.started_from[max(0, number - 9)] for number in range(1, 12)
    ]


@pytest.mark.slow
def test_the_ten_newest_releases_are_kept(whole: WatchedRun) -> None:
    kept = {path.name for path in (whole.folder / "releases").iterdir() if path.name.isdigit()}
    best = f"{int(whole.final['model_round'] or 0):06d}"
    assert kept == {f"{number:06d}" for number in range(3, 13)} | {best}


def test_a_federation_without_releases_cannot_look_back(configured: Configured) -> None:
    config, _ = configured(*BY_HISTORY)

    with pytest.raises(ValueError, match="a rule that looks back needs releases"):
        Federation(config, None, [], None)  # type: ignore[arg-type]
