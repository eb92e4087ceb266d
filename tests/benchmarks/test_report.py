"""What the tables say of runs: means over seeds, lost ones, and how rows stand to each other."""

import dataclasses
import math
from pathlib import Path

import pytest

from benchmarks.tables.definition import Row, TableDefinition
from benchmarks.tables.matrix import write_matrix
from benchmarks.tables.records import (
    Final,
    RecordsError,
    RunRecord,
    append_record,
    check_one_kind,
)
from benchmarks.tables.report import BY_HAND, figures_of, write_report

FIGURES = ("test_perplexity", "bytes_up")


def table_of(*rows: str) -> TableDefinition:
    return TableDefinition(
        title="A table",
        preset="keyboard-tiny",
        rows=tuple(Row(name, ()) for name in rows),
        minutes=1,
        figures=FIGURES,
        curve=None,
        references=("float32",),
        fractions=("bytes_up",),
    )


def finals_of(*figures: tuple[float, float]) -> list[Final]:
    return [dict(zip(FIGURES, values, strict=True)) for values in figures]


def runs_of(row: str, finals: list[Final]) -> list[RunRecord]:
    """Return a row's runs, the first with seed 1."""
    return [
        RunRecord(row=row, seed=seed, configuration={}, final=dict(final))
        for seed, final in enumerate(finals, start=1)
    ]


def test_a_row_is_the_mean_of_its_seeds_and_their_sample_deviation() -> None:
    figures = figures_of(finals_of((90.0, 1.0), (100.0, 1.0), (110.0, 1.0)), FIGURES)

    assert figures["test_perplexity"] == 100.0
    assert figures["test_perplexity_spread"] == 10.0
    assert (figures["seeds"], figures["lost"]) == (3, 0)


@pytest.mark.parametrize("bad", [math.inf, math.nan, None])
def test_a_seed_without_a_finite_figure_is_lost_and_not_averaged(bad: float | None) -> None:
    finals = [*finals_of((90.0, 1.0), (110.0, 1.0)), {"test_perplexity": bad}, {}]

    figures = figures_of(finals, FIGURES)

    assert figures["test_perplexity"] == 100.0
    assert (figures["seeds"], figures["lost"]) == (4, 2)


def test_runs_are_compared_seed_by_seed(tmp_path: Path) -> None:
    # Seed 1 of both is alike but for a percent; that the second seed is harder changes nothing.
    finals = {
        "float32": finals_of((100.0, 1000.0), (200.0, 1000.0)),
        "int8": finals_of((101.0, 157.0)),
    }
    runs = {name: runs_of(name, kept) for name, kept in finals.items()}
    rows = {name: figures_of(kept, FIGURES) for name, kept in finals.items()}

    write_report("t", table_of("float32", "int8"), rows, tmp_path, command="c", runs=runs)

    written = (tmp_path / "t.md").read_text()
    assert "- int8: +1.0 % against float32, bytes up 0.157 of its." in written


def test_where_the_other_has_fewer_seeds_means_are_compared(tmp_path: Path) -> None:
    finals = {
        "float32": finals_of((100.0, 1000.0)),
        "int8": finals_of((101.0, 157.0), (109.0, 157.0)),
    }
    runs = {name: runs_of(name, kept) for name, kept in finals.items()}
    rows = {name: figures_of(kept, FIGURES) for name, kept in finals.items()}

    write_report("t", table_of("float32", "int8"), rows, tmp_path, command="c", runs=runs)

    assert "- int8: +5.0 % against float32." in (tmp_path / "t.md").read_text()


def test_a_matrix_says_how_many_seeds_a_rule_lost(tmp_path: Path) -> None:
    rows = {
        "mean under noise": figures_of([*finals_of((50.0, 1.0)), {}], FIGURES),
        "median under noise": figures_of([{}, {}], FIGURES),
        "krum under noise": {},
    }
    runs = {name: runs_of(name, [{}, {}]) for name in rows}

    write_matrix("m", table_of(*rows), rows, tmp_path, command="c", runs=runs)

    written = (tmp_path / "m.md").read_text()
    assert "| mean | 50.0, 1 of 2 lost |" in written
    assert "| median | lost |" in written
    assert "| krum |  |" in written


def test_a_table_made_again_keeps_what_was_written_below_it_by_hand(tmp_path: Path) -> None:
    page = tmp_path / "t.md"
    for perplexity in (100.0, 90.0):
        runs = {"int8": runs_of("int8", finals_of((perplexity, 157.0)))}
        rows = {"int8": figures_of([run.final for run in runs["int8"]], FIGURES)}
        write_report("t", table_of("int8"), rows, tmp_path, command="c", runs=runs)
        if perplexity == 100.0:
            page.write_text(page.read_text() + BY_HAND + "\nRead it so.\n")

    assert "| int8 | 90.0 |" in page.read_text()
    assert page.read_text().endswith("\nRead it so.\n")
    assert page.read_text().count(BY_HAND) == 1


RECALL = ("test_perplexity", "test_top3_recall", "test_unknown_words")


def test_recall_of_before_words_alone_is_marked_beside_recall_of_now(tmp_path: Path) -> None:
    table = dataclasses.replace(table_of("before", "now"), figures=RECALL, fractions=())
    finals: dict[str, list[Final]] = {
        "before": [{"test_perplexity": 90.0, "test_top3_recall": 0.25}],
        "now": [{"test_perplexity": 90.0, "test_top3_recall": 0.2, "test_unknown_words": 0.1}],
    }
    runs = {name: runs_of(name, kept) for name, kept in finals.items()}
    rows = {name: figures_of(kept, RECALL) for name, kept in finals.items()}

    write_report("t", table, rows, tmp_path, command="c", runs=runs)

    written = (tmp_path / "t.md").read_text()
    assert "| before | 90.0 | 0.2500 \\* |  | 1 |" in written
    assert "| now | 90.0 | 0.2000 | 0.1000 | 1 |" in written
    assert written.count("counted before words alone](README.md#recall)") == 1
    assert rows["before"]["counted_before_words_alone"] == 1

    del rows["before"], runs["before"]
    write_report("t", table, rows, tmp_path, command="c", runs=runs)
    of_now = (tmp_path / "t.md").read_text()
    assert "words alone" not in of_now
    for page in (written, of_now):
        assert page.count("`<unk>` included; recall is over typed words.") == 1


def test_a_run_of_words_joins_no_records_of_before_words_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    check_one_kind(path)
    now = {"test_top3_recall": 0.2, "test_unknown_words": 0.1}
    append_record(path, runs_of("now", [now])[0])
    check_one_kind(path)

    append_record(path, runs_of("before", [{"test_top3_recall": 0.25}])[0])

    with pytest.raises(RecordsError, match=r"t.jsonl holds runs whose recall was counted before"):
        check_one_kind(path)
