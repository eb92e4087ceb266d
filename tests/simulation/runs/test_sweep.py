import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from simulation.config.overrides import parse_override
from simulation.figures.metrics import Figures, MetricsWriter, Value
from simulation.figures.threshold import Threshold
from simulation.runs.sweep import Cell, cells, rounds_to, run_sweep

TABLES = {"aggregation": {"rule": "attentive"}, "training": {"batch_size": 10}}


def score(cell: Cell, seed: int, folder: Path) -> Mapping[str, Value]:
    """Stand in for a run: perplexity 100 + 10 κ + seed."""
    return {"test_perplexity": 100 + 10 * cell.choices["aggregation.attention_strength"] + seed}


def test_every_combination_is_a_cell_of_its_own() -> None:
    grid = cells(
        TABLES,
        [parse_override("aggregation.attention_strength=0,0.5"), parse_override("rounds.cap=1,2")],
    )

    assert [list(cell.choices.values()) for cell in grid] == [[0, 1], [0, 2], [0.5, 1], [0.5, 2]]
    assert grid[2].tables == {
        "aggregation": {"rule": "attentive", "attention_strength": 0.5},
        "training": {"batch_size": 10},
        "rounds": {"cap": 1},
    }
    assert len({cell.name for cell in grid}) == 4


def test_what_all_cells_have_in_common_is_no_choice() -> None:
    fixed = parse_override("model={layer_count=2}")

    grid = cells(TABLES, [fixed, parse_override("aggregation.attention_strength=0,0.5")])

    assert [cell.choices for cell in grid] == [
        {"aggregation.attention_strength": 0},
        {"aggregation.attention_strength": 0.5},
    ]
    assert all(cell.tables["model"] == {"layer_count": 2} for cell in grid)
    assert [cell.choices for cell in cells(TABLES, [fixed])] == [{"model": {"layer_count": 2}}]


def test_a_table_gives_the_mean_and_the_spread_over_seeds(tmp_path: Path) -> None:
    grid = cells(TABLES, [parse_override("aggregation.attention_strength=0,1")])

    rows = run_sweep(
        grid,
        [1, 2, 3],
        tmp_path,
        figure="test_perplexity",
        threshold=None,
        start_cell=partial(partial, score),
    )

    # 101, 102, 103 and 111, 112, 113: means 102 and 112, sample standard deviation 1.
    assert [(row.mean, row.spread) for row in rows] == [(102.0, 1.0), (112.0, 1.0)]
    table = (tmp_path / "sweep.md").read_text()
    assert "| 0 | 102 ± 1 | 3 |\n" in table
    # Without a threshold no seed can miss one.
    assert "missed" not in table
    assert "missed" not in (tmp_path / "sweep.json").read_text()
    assert (tmp_path / "sweep.png").exists()
    assert (tmp_path / "sweep.json").exists()


def test_a_figure_that_runs_do_not_report_is_refused(tmp_path: Path) -> None:
    grid = cells(TABLES, [parse_override("aggregation.attention_strength=0")])

    with pytest.raises(ValueError, match=r"reports no speed; choose one of \['test_perplexity'\]"):
        run_sweep(
            grid, [1], tmp_path, figure="speed", threshold=None, start_cell=partial(partial, score)
        )


@pytest.mark.slow
@pytest.mark.parametrize("diverged", [math.inf, None])
def test_a_seed_that_diverged_is_lost_and_the_mean_is_over_the_others(
    tmp_path: Path, diverged: float | None
) -> None:
    """A run that just ended tells infinity; its file, and so a sweep that goes on, null."""

    def run_cell(cell: Cell, seed: int, folder: Path) -> Mapping[str, Value]:
        strength = cell.choices["aggregation.attention_strength"]
        is_lost = strength == 1 or seed == 2
        return {"round": 4, "test_perplexity": diverged if is_lost else 100.0 + seed}

    rows = run_sweep(
        cells(TABLES, [parse_override("aggregation.attention_strength=0,1")]),
        [1, 2, 3],
        tmp_path,
        figure="test_perplexity",
        threshold=None,
        start_cell=partial(partial, run_cell),
    )

    # 101 and 103: mean 102, sample standard deviation √2.
    assert [(row.mean, row.spread) for row in rows] == [
        (102.0, pytest.approx(2**0.5)),
        (None, None),
    ]
    assert [(row.seeds, row.lost) for row in rows] == [([1, 3], [2]), ([], [1, 2, 3])]
    table = (tmp_path / "sweep.md").read_text()
    assert "| 0 | 102 ± 1.4 | 3, 1 lost |\n" in table
    assert "| 1 | lost | 3, 3 lost |\n" in table


def test_rounds_to_a_threshold_count_the_first_round_at_or_below_it(tmp_path: Path) -> None:
    rows: list[Figures] = [
        {"round": 1, "valid_perplexity": 300.0},
        {"round": 2},
        {"round": 3, "valid_perplexity": 200.0},
        {"round": 4, "valid_perplexity": 210.0},
    ]

    assert rounds_to(rows, Threshold("valid_perplexity", 200)) == 3
    assert rounds_to(rows, Threshold("valid_perplexity", 199.9)) is None


@pytest.mark.parametrize("figure", ["valid_top3_recall", "valid_stop_accuracy"])
def test_a_figure_of_which_more_is_better_comes_to_its_threshold_from_below(figure: str) -> None:
    rows: list[Figures] = [{"round": 1, figure: 0.1}, {"round": 2, figure: 0.3}]

    assert rounds_to(rows, Threshold(figure, 0.3)) == 2
    assert rounds_to(rows, Threshold(figure, 0.31)) is None


def test_a_run_that_misses_the_threshold_is_counted_and_not_averaged(tmp_path: Path) -> None:
    def write_rounds(cell: Cell, seed: int, folder: Path) -> Mapping[str, Value]:
        folder.mkdir(parents=True)
        with MetricsWriter(folder) as writer:
            # Seed 1 reaches 100 in round 2, seed 2 never.
            for number in (1, 2):
                writer.write({"round": number, "valid_perplexity": 200.0 * seed / number})
        return {}

    (row,) = run_sweep(
        cells(TABLES, []),
        [1, 2],
        tmp_path,
        figure="",
        threshold=Threshold("valid_perplexity", 100),
        start_cell=partial(partial, write_rounds),
    )

    assert (row.mean, row.seeds, row.missed) == (2.0, [1], [2])
    assert "| 2 | 1 | 1 |" in (tmp_path / "sweep.md").read_text()
