"""The table of the keyboard under a guarantee: what it promises, its noise here, and its start."""

import math
import sys
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from benchmarks import keyboard_guarantee
from benchmarks.guarantee.cells import CELLS, COHORTS, ROUNDS, Cell, cell_of, promise
from benchmarks.guarantee.page import facts_of, write_guarantee
from benchmarks.guarantee.rows import BEFORE, SCRATCH, START, row_name, table
from benchmarks.guarantee.started import with_start
from benchmarks.tables.maker import configured
from benchmarks.tables.records import RunRecord
from benchmarks.tables.report import figures_of
from privacy.accounting.accountant import epsilon_of_tally
from privacy.accounting.events import GaussianRelease, SecretCoinFlips
from privacy.accounting.tally import Tally
from privacy.noise.settings import PaperServerNoise
from server.aggregation.settings import AttentiveSettings
from simulation.config.simulation import SimulationConfig
from simulation.runs.checkpoint import RunDescription

TABLE = table()
BOTH = [cell_of(people, 2.0) for people in COHORTS]


def of(row: str) -> SimulationConfig:
    """Return the settings of a row's runs."""
    found = next(one for one in TABLE.rows if one.name == row)
    config, _ = configured(TABLE, *found.settings, preset=found.preset)
    return config


def count_epsilon(cell: Cell, multiplier: float) -> float:
    """Have the accountant count a cell's whole run at a multiplier, event by event."""
    coins = SecretCoinFlips(
        sampling_rate=cell.cohort / cell.population_size,
        population_size=cell.population_size,
        slot_count=promise(cell).slot_count,
    )
    event = GaussianRelease(noise_multiplier=multiplier, adjacency="zero-out", sampling=coins)
    return epsilon_of_tally(Tally().plus(event, ROUNDS), cell.population_size**-1.1)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_cell_keeps_its_budget_with_as_little_noise_as_that_takes(cell: Cell) -> None:
    counted = count_epsilon(cell, cell.noise_multiplier)

    assert counted <= cell.epsilon < count_epsilon(cell, cell.noise_multiplier - 0.01)
    assert facts_of(cell).epsilon == pytest.approx(counted)
    assert cell.population_size * facts_of(cell).delta < 1


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_few_people_get_the_noise_and_the_step_of_a_deployed_cohort(cell: Cell) -> None:
    config, deployed = of(row_name(START, cell)), of(row_name(START, None))
    strength = deployed.aggregation.attention_strength  # type: ignore[union-attr]  # checked next
    assert isinstance(config.aggregation, AttentiveSettings)
    assert isinstance(config.privacy, PaperServerNoise)
    clipping_norm = deployed.privacy.clipping_norm
    assert clipping_norm is not None

    # One person among M places moves a mean by e^κ C / (M - 1 + e^κ) at most.
    places, most = promise(cell).slot_count, math.exp(strength)
    reach = most * clipping_norm / (places - 1 + most)
    step = deployed.aggregation.server_step_size
    noise = step * cell.noise_multiplier * reach
    assert config.privacy.randomisation_magnitude == pytest.approx(noise, rel=0.01)
    # So many of the places are full on average.
    assert config.aggregation.server_step_size == pytest.approx(step * cell.cohort / places)


def test_more_epsilon_and_more_people_mean_less_noise() -> None:
    noise = {(c.population_size, c.epsilon): promise(c).noise_std for c in CELLS}

    assert noise[10_000, 8.0] < noise[10_000, 2.0] < noise[10_000, 1.0]
    assert all(noise[100_000, budget] < noise[10_000, budget] for budget in (1.0, 2.0, 8.0))


@pytest.mark.parametrize("cell", [None, *BOTH], ids=str)
def test_from_scratch_differs_in_the_start_alone(cell: Cell | None) -> None:
    ours, scratch = of(row_name(START, cell)), of(row_name(SCRATCH, cell))

    assert (ours.start_from, scratch.start_from) == ("english", None)
    assert msgspec.structs.replace(ours, start_from=None) == scratch


def test_the_page_has_every_cell_its_cost_and_what_is_missing(tmp_path: Path) -> None:
    # Without noise 20 % and 40 %; with it a tenth of a point, half a point and a point less.
    cell = CELLS[1]
    figures = {
        row_name(START, None): (0.12, 0.2, 0.4),
        row_name(START, cell): (0.119, 0.195, 0.39),
    }
    names = ("test_top1_recall", "test_top3_recall", "keystroke_savings")
    runs = {
        row: [
            RunRecord(
                row=row, seed=1, configuration={}, final=dict(zip(names, of_row, strict=True))
            )
        ]
        for row, of_row in figures.items()
    }
    rows = {row: figures_of([run.final for run in made], names) for row, made in runs.items()}

    write_guarantee("it", TABLE, rows, tmp_path, command="c", runs=runs)

    page = (tmp_path / "it.md").read_text()
    told = (
        f"| {START} | {cell.epsilon:g} | {cell.population_size:,} | {cell.noise_multiplier:.2f} |"
    )
    assert f"{told} {cell.cohort:,} | {ROUNDS} | 11.9 % | 19.5 % | 39.0 % | 1 |" in page
    assert "-0.1 points of top-1, -0.5 points of top-3, -1.0 points of keys" in page
    missing = page.partition("## Not run")[2]
    assert f"- {BEFORE}: 0 of 1 seeds" in missing
    assert f"- {row_name(START, cell)}: 1 of 3 seeds" in missing
    assert "Extrapolated" in page


def test_a_run_keeps_the_digest_of_its_start_and_the_page_tells_of_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.data.__file__", str(tmp_path / "__init__.py"))
    runs = []
    for seed, shipped in enumerate((b"one", b"two"), start=1):
        (tmp_path / "english-start.sotto").write_bytes(shipped)
        described = RunDescription(run="", seed=seed, configuration={"start_from": "english"})
        (tmp_path / "run.json").write_bytes(msgspec.json.encode(described))
        kept = with_start(TABLE, tmp_path, None, {})
        runs.append(RunRecord(row=BEFORE, seed=seed, configuration={}, final={}, more=kept.more))

    write_guarantee("it", TABLE, {}, tmp_path, command="c", runs={BEFORE: runs})

    page = (tmp_path / "it.md").read_text()
    assert "rows of different starts do not compare" in page
    assert all(sha256(shipped).hexdigest()[:16] in page for shipped in (b"one", b"two"))


@pytest.mark.slow
def test_the_quick_form_trains_with_and_without_noise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    short = ["--workers", "1", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", ["keyboard_guarantee", "--quick", *short])

    keyboard_guarantee.main()

    page = capsys.readouterr().out
    assert "| from scratch, no noise | none |" in page
    assert "| from scratch | 2 | 10,000 |" in page
    assert "## Not run" not in page
