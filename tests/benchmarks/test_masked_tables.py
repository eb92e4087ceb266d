"""The tables of noised sums: one multiplier in every column, and what the page says of the runs."""

import re
import sys
from pathlib import Path

import pytest

from benchmarks import masked_tables
from benchmarks.tables.masked import MASKED, MEAN, NO_NOISE, PLANS, SUMS, row_name
from benchmarks.tables.onlookers import write_masked
from benchmarks.tables.records import RunRecord
from benchmarks.tables.report import figures_of

SMS, STRENGTHS, COHORT = (
    PLANS[name] for name in ("masked-sms", "masked-sms-strengths", "masked-cohort")
)


def multiplier_of(table: str, row: str) -> float:
    """Return the noise multiplier of a row's own settings."""
    settings = next(one.settings for one in PLANS[table].table.rows if one.name == row)
    found = re.search(r"noise_multiplier=([^,}]+)", " ".join(settings))
    assert found is not None
    return float(found[1])


def runs_of(row: str, finals: list[tuple[float, float]]) -> list[RunRecord]:
    return [
        RunRecord(
            row=row,
            seed=seed,
            configuration={},
            final={"test_perplexity": perplexity, "test_top3_recall": recall},
        )
        for seed, (perplexity, recall) in enumerate(finals, start=1)
    ]


@pytest.mark.parametrize("column", [MEAN, SUMS, MASKED])
def test_without_attention_sixteen_clients_get_sixteen_thousandths_of_the_noise(
    column: str,
) -> None:
    # All three add z C / 1,000 to the mean of 16, but for the weights' part of the sums.
    assert multiplier_of("masked-sms-strengths", row_name(0, 1, column)) == pytest.approx(
        0.016, rel=1e-4
    )


@pytest.mark.parametrize("column", [MEAN, SUMS, MASKED])
def test_a_cohort_at_hand_gets_its_own_noise(column: str) -> None:
    assert multiplier_of("masked-cohort", row_name(0.5, 2, column)) == 2


def test_attention_costs_the_mean_more_in_the_large_cohort_than_in_the_small() -> None:
    # z e^κ / (M + e^κ - 1) of C: 1.0006 of the limit at 1,000 places, 1.04 at 16.
    expected = (16 + 0.64872) / (1_000 + 0.64872)
    assert multiplier_of("masked-sms", row_name(0.5, 1, MEAN)) == pytest.approx(expected, rel=1e-3)
    assert multiplier_of("masked-sms", row_name(0.5, 1, SUMS)) == pytest.approx(0.016)


def test_columns_are_compared_seed_by_seed_and_what_is_missing_is_named(tmp_path: Path) -> None:
    # +1 %, +2 %, +3 % of perplexity; +0.1, -0.1, +0.3 points of recall.
    names = {column: row_name(0.5, 1, column) for column in (MEAN, SUMS)}
    runs = {
        names[MEAN]: runs_of(names[MEAN], [(100.0, 0.20), (50.0, 0.21), (100.0, 0.20)]),
        names[SUMS]: runs_of(names[SUMS], [(101.0, 0.201), (51.0, 0.209), (103.0, 0.203)]),
    }
    table = SMS.table
    rows = {
        name: figures_of([run.final for run in made], table.figures) for name, made in runs.items()
    }

    write_masked("masked-sms", table, rows, tmp_path, command="c", runs=runs)

    page = (tmp_path / "masked-sms.md").read_text()
    assert f"| {names[SUMS]} | {MEAN} | +2.00 % ± 1.00 | +0.10 ± 0.20, within the spread |" in page
    assert f"- {row_name(0.5, 1, MASKED)}: 0 of 3 seeds" in page
    assert names[SUMS] not in page.partition("## Not run")[2]


def test_masks_alone_promise_something_against_the_coordinator(tmp_path: Path) -> None:
    write_masked("masked-cohort", COHORT.table, {}, tmp_path, command="c", runs={})

    page = (tmp_path / "masked-cohort.md").read_text()
    coordinators = re.findall(r"\| of the coordinator \| \S+ \| \S+ \| (.+?) \|", page)
    devices = re.findall(r"\| of the devices, under masks \| \S+ \| (\S+) \| (\S+) \|", page)
    assert coordinators == ["nothing is promised"] * 3
    # No attempt was abandoned, so both have seen the same sums.
    assert len(devices) == 3
    assert all(readers == coordinator for readers, coordinator in devices)


@pytest.mark.slow
def test_the_quick_form_trains_with_noise_in_every_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    short = ["--workers", "1", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", ["masked_tables", "--quick", *short])

    masked_tables.main()

    page = capsys.readouterr().out
    line = next(line for line in page.splitlines() if line.startswith("| κ = 0.5, z = 1 |"))
    assert page.index(NO_NOISE) < page.index(MEAN) < page.index(SUMS) < page.index(MASKED)
    figures = [cell for cell in line.split("|")[2:-1] if cell.strip()]
    assert [float(figure) > 1 for figure in figures] == [True] * 3
    assert "## Not run" not in page
