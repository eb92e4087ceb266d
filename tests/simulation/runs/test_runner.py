from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import simulation.runs.runner
from server.releases.files import read_release
from simulation.config.run_files import RunFileError
from simulation.config.simulation import SimulationConfig
from simulation.figures.metrics import read_metrics
from simulation.figures.threshold import Threshold
from simulation.population.population import Population, PopulationError
from simulation.runs.checkpoint import CheckpointError
from simulation.runs.runner import RunOptions, run_simulation
from simulation.workers.engine import WorkerError
from tests.simulation.killed_runs import RunKilledError, StopsAfter

Configured = Callable[..., tuple[SimulationConfig, dict[str, Any]]]
TIMES = {"round_s", "evaluation_s"}


def without_times(folder: Path) -> list[dict[str, object]]:
    return [
        {name: value for name, value in row.items() if name not in TIMES}
        for row in read_metrics(folder)
    ]


def last_parameters(folder: Path) -> bytes:
    release = folder / "releases" / "latest"
    return read_release(release).parameters.tobytes()


@pytest.mark.slow
def test_a_run_that_was_killed_ends_as_an_undisturbed_one(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    config, tables = configured()
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    final = run_simulation(config, tables, population, whole, RunOptions())

    # Killed after round 1's and again after round 3's figures were written, before their
    # checkpoints.
    for rounds in (1, 3):
        with pytest.raises(RunKilledError):
            options = RunOptions(reporter=StopsAfter(rounds))
            run_simulation(config, tables, population, broken, options)
    resumed = run_simulation(config, tables, population, broken, RunOptions(worker_count=2))

    assert resumed == final
    assert last_parameters(broken) == last_parameters(whole)
    assert without_times(broken) == without_times(whole)


def test_a_run_learns_and_is_not_run_twice(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    config, tables = configured()

    final = run_simulation(config, tables, population, tmp_path, RunOptions())
    again = run_simulation(config, tables, population, tmp_path, RunOptions(reporter=StopsAfter(1)))

    first, *_, last = [row["valid_perplexity"] for row in read_metrics(tmp_path)]
    assert isinstance(first, float)
    assert isinstance(last, float)
    assert last < first
    assert again == final
    # 4 rounds of 3 clients, and the model that did best was measured.
    assert final["round"] == 4
    assert final["valid_perplexity"] == min(
        row["valid_perplexity"] for row in read_metrics(tmp_path) if row["valid_perplexity"]
    )


def test_models_are_kept_on_the_way_where_somebody_looks_back_at_them(
    configured: Configured,
    population: Population,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(simulation.runs.runner, "_CHECKPOINT_SECONDS", 0.0)
    config, tables = configured("evaluation.keep_best=false")
    kept = {}
    for every in (0, 2):
        folder = tmp_path / str(every)
        run_simulation(config, tables, population, folder, RunOptions(kept_every=every))
        kept[every] = [path.name for path in sorted((folder / "releases").glob("[0-9]*"))]

    assert kept == {0: ["000004"], 2: ["000002", "000004"]}


def test_a_folder_with_another_run_is_left_alone(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    config, tables = configured("rounds.cap=1")
    run_simulation(config, tables, population, tmp_path, RunOptions())
    other, other_tables = configured("rounds.cap=1", "seed=2")

    with pytest.raises(RunFileError, match="another configuration or seed"):
        run_simulation(other, other_tables, population, tmp_path, RunOptions())


def test_a_damaged_checkpoint_is_refused(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    config, tables = configured()
    with pytest.raises(RunKilledError):
        run_simulation(config, tables, population, tmp_path, RunOptions(reporter=StopsAfter(2)))
    parameters = tmp_path / "releases" / "latest" / "parameters.bin"
    damaged = bytearray(parameters.read_bytes())
    damaged[-1] ^= 1
    parameters.write_bytes(damaged)

    with pytest.raises(CheckpointError, match=r"remove .* to start over"):
        run_simulation(config, tables, population, tmp_path, RunOptions())


def test_a_run_stops_when_it_has_converged(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    # No round improves by 99 %, so the second evaluation without improvement ends the run: the
    # first one sets the mark.
    config, tables = configured("convergence={patience=2, least_improvement=0.99}")

    final = run_simulation(config, tables, population, tmp_path, RunOptions())

    assert final["round"] == 3


def test_a_run_stops_at_a_threshold(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    config, tables = configured()
    options = RunOptions(until=Threshold("valid_perplexity", 1e9))

    assert run_simulation(config, tables, population, tmp_path, options)["round"] == 1


KEPT = ("training.optimiser_state=kept", "rounds.cohort_size=6")


@pytest.mark.slow
def test_kept_optimiser_states_are_carried_from_round_to_round(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    for name in ("kept", "fresh"):
        config, tables = configured(
            *KEPT, "training.momentum=0.9", f"training.optimiser_state={name}"
        )
        run_simulation(config, tables, population, tmp_path / name, RunOptions())

    kept_rows, fresh_rows = (read_metrics(tmp_path / name) for name in ("kept", "fresh"))
    assert kept_rows[0]["train_loss"] == fresh_rows[0]["train_loss"]
    assert kept_rows[1]["train_loss"] != fresh_rows[1]["train_loss"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimiser",
    [("training.momentum=0.9",), ("training.optimiser=adam", "training.learning_rate=0.01")],
    ids=["sgd", "adam"],
)
def test_a_run_with_kept_optimisers_ends_alike_whatever_the_workers_and_the_stops(
    configured: Configured,
    population: Population,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    optimiser: tuple[str, ...],
) -> None:
    monkeypatch.setattr(simulation.runs.runner, "_CHECKPOINT_SECONDS", 0.0)
    config, tables = configured(*KEPT, *optimiser)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    final = run_simulation(config, tables, population, whole, RunOptions())

    # Killed before the checkpoint of round 3: that round is run again, from the states of round 2.
    with pytest.raises(RunKilledError):
        options = RunOptions(worker_count=2, reporter=StopsAfter(3))
        run_simulation(config, tables, population, broken, options)
    resumed = run_simulation(config, tables, population, broken, RunOptions())

    assert resumed == final
    assert last_parameters(broken) == last_parameters(whole)
    # One state a client, that of the last round: what nobody goes back to is not kept.
    found = sorted(str(path.relative_to(whole)) for path in whole.glob("optimisers/*/*"))
    assert found == [f"optimisers/device-{number:04}/000004.bin" for number in range(1, 7)]


def test_a_damaged_optimiser_state_is_named(
    configured: Configured, population: Population, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulation.runs.runner, "_CHECKPOINT_SECONDS", 0.0)
    config, tables = configured(*KEPT, "training.momentum=0.9")
    with pytest.raises(RunKilledError):
        run_simulation(config, tables, population, tmp_path, RunOptions(reporter=StopsAfter(2)))
    (tmp_path / "optimisers" / "device-0003" / "000001.bin").write_bytes(b"torn")

    with pytest.raises(WorkerError, match=r"device-0003: .*000001\.bin holds no optimiser state"):
        run_simulation(config, tables, population, tmp_path, RunOptions())


def test_keystrokes_are_measured_when_asked_for(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    config, tables = configured("rounds.cap=1", "data.keystrokes=true")

    final = run_simulation(config, tables, population, tmp_path, RunOptions())

    # "the time": 9 keys with spaces. "the" is in the list of 50; "time" may not be.
    assert 0 <= float(final["keystroke_savings"] or 0) <= float(final["keystroke_ceiling"] or 0) < 1


NOBODYS: dict[str, dict[str, Tensor]] = {}


@pytest.mark.parametrize(
    ("change", "settings", "why"),
    [
        ({"held_out": NOBODYS}, (), "nothing is held out for it"),
        ({}, ("model.tied=false", 'personalisation={method="fedper"}'), "releases no whole model"),
    ],
)
def test_a_run_that_is_to_stop_by_its_validation_split_needs_one(
    configured: Configured,
    population: Population,
    tmp_path: Path,
    *,
    change: dict[str, Any],
    settings: tuple[str, ...],
    why: str,
) -> None:
    population = replace(population, **change)
    config, tables = configured("rounds.cap=1", *settings, "convergence={patience=1}")
    with pytest.raises(PopulationError, match=f"{why}.*; leave it out"):
        run_simulation(config, tables, population, tmp_path, RunOptions())

    config, tables = configured("rounds.cap=1", *settings)
    final = run_simulation(config, tables, population, tmp_path / "again", RunOptions())
    assert final["round"] == 1
