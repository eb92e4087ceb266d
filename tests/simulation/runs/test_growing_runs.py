"""Whole runs of a model that grows: alike however they run, as cheap as the formula says."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import simulation.runs.runner
from models.plan.plan import plan_schema
from models.plan.stages import plan_at_stage
from server.releases.files import read_release
from simulation.config.simulation import SimulationConfig
from simulation.figures.metrics import read_metrics
from simulation.population.population import TextPopulation
from simulation.runs.runner import RunOptions, run_simulation
from simulation.understanding.finished_run import open_run
from tests.simulation.figures.test_personal_runs import (
    states,
    without_times,
)
from tests.simulation.here import HERE
from tests.simulation.killed_runs import RunKilledError, StopsAfter

Configured = Callable[..., tuple[SimulationConfig, dict[str, Any]]]
MODEL = (
    'model={family="transformer_lm", vocabulary_size=50, model_size=8, head_count=2, '
    "layer_count=3, feedforward_size=8, context_size=16}"
)
GROWTH = "growth={target_layer_count=3, stage_count=3, round_count=6}"
GROWING = (MODEL, GROWTH, "rounds.cap=6")
METHODS = {
    "per-layer": ("privacy.clipping=per-layer",),
    "kept-adam": ("training.optimiser=adam", "training.optimiser_state=kept"),
    "ditto": ('personalisation={method="ditto"}',),
    "vanilla-random": ('personalisation={method="vanilla"}', "growth.start=random"),
    "fedtp": ('personalisation={method="fedtp"}',),
}


@pytest.fixture(autouse=True)
def checkpoint_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation.runs.runner, "_CHECKPOINT_SECONDS", 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("settings", METHODS.values(), ids=METHODS)
def test_a_growing_run_is_the_same_bits_whatever_the_workers_and_the_stops(
    configured: Configured, population: TextPopulation, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    config, tables = configured(*GROWING, *settings, "rounds.cap=4")
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    final = run_simulation(config, tables, population, whole, HERE)

    # Killed before the checkpoint of round 3, the first of stage 2.
    with pytest.raises(RunKilledError):
        options = RunOptions(worker_count=2, reporter=StopsAfter(3))
        run_simulation(config, tables, population, broken, options)
    resumed = run_simulation(config, tables, population, broken, HERE)

    assert resumed == final
    assert without_times(broken) == without_times(whole)
    assert states(broken) == states(whole)
    releases = [read_release(folder / "releases" / "latest") for folder in (whole, broken)]
    assert releases[0].parameters.tobytes() == releases[1].parameters.tobytes()
    assert releases[0].personalisation == releases[1].personalisation
    assert releases[0].plan.growth_stage == 2


@pytest.mark.slow
def test_a_growing_run_tells_its_stage_and_saves_the_bytes_of_the_formula(
    configured: Configured, population: TextPopulation, tmp_path: Path
) -> None:
    config, tables = configured(*GROWING)

    final = run_simulation(config, tables, population, tmp_path, HERE)

    rows = read_metrics(tmp_path)
    assert [row["growth_stage"] for row in rows] == [1, 1, 2, 2, 3, 3]
    assert [row["layer_count"] for row in rows] == [1, 1, 2, 2, 3, 3]
    release = read_release(tmp_path / "releases" / "latest")
    assert release.plan.growth_stage == 3
    # Three clients in each of six rounds. What grows is all that is in a block.
    schema = plan_schema(release.plan)
    growing = sum(4 * spec.element_count for spec in schema.tensors if "blocks" in spec.name)
    without_growth = 18 * schema.payload_bytes
    saved = 1 - float(final["bytes_down"] or 0) / without_growth
    # (c - 1) / 2c of it: 1/3 with three stages of equal length.
    assert saved == pytest.approx(growing / schema.payload_bytes * 2 / 6, rel=0.01)
    assert final["bytes_up"] == final["bytes_down"]
    # What is told at the start is what one of the three clients moved, and would have moved.
    moved = int(final["bytes_down"] or 0) * 2 // 3
    assert (
        f"moves {moved:,} bytes of parameters instead of {without_growth * 2 // 3:,} bytes, "
        in (config.growth_told)
    )


@pytest.mark.slow
def test_the_best_model_may_be_of_an_earlier_stage(
    configured: Configured,
    population: TextPopulation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, tables = configured(*GROWING, "rounds.cap=4", "evaluation.keep_best=true")
    early, early_tables = configured(*GROWING, "rounds.cap=2", "evaluation.keep_best=true")
    expected = run_simulation(early, early_tables, population, tmp_path / "early", HERE)
    observe = simulation.runs.runner._Run._observe

    def worse_from_three(run: Any, figures: dict[str, Any]) -> bool:
        if figures["round"] > 2:
            figures["valid_perplexity"] = 1e6
        return observe(run, figures)

    monkeypatch.setattr(simulation.runs.runner._Run, "_observe", worse_from_three)
    final = run_simulation(config, tables, population, tmp_path / "late", HERE)

    assert (expected["model_round"], final["model_round"], final["round"]) == (2, 2, 4)
    assert final["test_perplexity"] == expected["test_perplexity"]


def test_a_release_of_an_early_stage_is_a_whole_model_of_fewer_layers(
    configured: Configured, population: TextPopulation, tmp_path: Path
) -> None:
    config, tables = configured(*GROWING, "rounds.cap=2")
    run_simulation(config, tables, population, tmp_path, HERE)

    release = read_release(tmp_path / "releases" / "latest")

    assert release.plan.model == config.model_at(1)
    assert release.plan.model != config.model
    assert release.plan == plan_at_stage(plan_at_stage(release.plan, 3), 1)
    assert len(release.parameters) == plan_schema(release.plan).element_count


@pytest.mark.slow
def test_what_every_stage_ended_with_is_kept_and_can_be_opened(
    configured: Configured,
    population: TextPopulation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Nothing but a stage's end, or the run's, makes a checkpoint due.
    monkeypatch.setattr(simulation.runs.runner, "_CHECKPOINT_SECONDS", math.inf)
    config, tables = configured(
        *GROWING, 'personalisation={method="vanilla"}', "evaluation.every_rounds=6"
    )

    run_simulation(config, tables, population, tmp_path, HERE)

    kept = sorted(int(path.name) for path in (tmp_path / "releases").glob("[0-9]*"))
    assert kept == [2, 4, 6]
    run = open_run(tmp_path)
    for layers, round_number in enumerate(kept, start=1):
        stage = run.at(round_number)
        assert stage.plan.growth_stage == layers
        assert stage.plan.model == config.model_at(layers)
        took_part = [name for name in population.clients if stage.kept_by(name) is not None]
        assert took_part
        assert stage.network_of(took_part[0]) is not None


@pytest.mark.slow
def test_a_guarantee_costs_a_model_that_grows_what_it_costs_any_other(
    configured: Configured, population: TextPopulation, tmp_path: Path
) -> None:
    central = (
        'privacy={mode="central", clipping_norm=1.0, noise_multiplier=1.0, delta=1e-3, '
        'epsilon_budget=100.0, adjacency="zero-out"}',
        'aggregation={rule="attentive", attention_strength=0.5}',
        "rounds.cap=3",
    )
    spent = []
    for name, stages in (("growing", 3), ("whole", 1)):
        config, tables = configured(*GROWING, *central, f"growth.stage_count={stages}")
        run_simulation(config, tables, population, tmp_path / name, HERE)
        rows = read_metrics(tmp_path / name)
        spent.append([row["epsilon"] for row in rows])

    # The noise follows from the clip and the places, not from how many numbers it is added to.
    assert spent[0] == spent[1]
    assert len(set(spent[0])) == 3
