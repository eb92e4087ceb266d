"""A page of simulated runs: what differs, what it spreads over, and what is refused."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from simulation.cli import main
from simulation.figures.metrics import Value
from simulation.runs.checkpoint import RunDescription

Rows = list[dict[str, Value]]
MakeRun = Callable[..., Path]
ROWS: Rows = [{"round": 1, "valid_perplexity": 30.0}, {"round": 2, "valid_perplexity": 20.0}]


@pytest.fixture
def make_run(configured: Callable[..., Any], tmp_path: Path) -> MakeRun:
    """Return a function that writes the folder of a run."""

    def make(name: str, *settings: str, seed: int = 1, rows: Rows = ROWS, **final: Value) -> Path:
        _, tables = configured(*settings)
        folder = tmp_path / name
        folder.mkdir(parents=True)
        configuration = {**tables, "seed": seed}
        described = RunDescription(run="0" * 32, seed=seed, configuration=configuration)
        (folder / "run.json").write_bytes(msgspec.json.encode(described))
        lines = (json.dumps(row) + "\n" for row in rows)
        (folder / "metrics.jsonl").write_text("".join(lines))
        if final:
            ended = {"round": len(rows), "model_round": len(rows), **final}
            (folder / "final.json").write_text(json.dumps(ended))
        return folder

    return make


@pytest.fixture
def page_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that has the command write a page, and returns it, or else its error."""

    def page(*runs: Path) -> str:
        target = tmp_path / "page.html"
        status = main(["report", *map(str, runs), "--html", str(target)])
        told = capsys.readouterr()
        return told.err if status else target.read_text()

    return page


def rows_of(page: str) -> dict[str, list[str]]:
    """Return the cells of each row of figures or settings by its first."""
    found = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall("<tr>.*?</tr>", page)]
    return {re.sub("<[^>]*>", "", cells[0]): cells[1:] for cells in found if cells}


def test_figures_of_one_setting_are_a_mean_with_its_spread_and_the_best_is_bold(
    make_run: MakeRun, page_of: Callable[..., str]
) -> None:
    weak, strong = (f"aggregation.attention_strength={value}" for value in (0.5, 2.0))
    runs = [
        make_run("weak/1", weak, seed=1, test_perplexity=20.0, accuracy=0.3),
        make_run("weak/2", weak, seed=2, test_perplexity=24.0, accuracy=0.3),
        make_run("strong/1", strong, seed=1, test_perplexity=30.0, accuracy=0.4),
        make_run("strong/2", strong, seed=2, test_perplexity=None, accuracy=0.4),
    ]
    page = page_of(*runs)

    rows = rows_of(page)
    # The standard deviation of 20 and 24 is the root of 8; of one value it is none.
    assert rows["test perplexity"] == ["<b>22 ± 2.8</b>", "30, 1 lost"]
    assert rows["accuracy"] == ["0.3", "<b>0.4</b>"]
    assert rows["aggregation.attention_strength"] == ["0.5", "2.0"]
    assert "seed" not in rows
    assert "best 20 in round 2, attention_strength 0.5, seed 1" in page
    assert "None: no noise" not in page
    assert "none: no noise, no privacy guarantee" in page


def test_a_figure_that_one_run_does_not_tell_is_no_divergence(
    make_run: MakeRun, page_of: Callable[..., str]
) -> None:
    other = "aggregation.attention_strength=2.0"
    runs = [make_run("a", bytes_up=5_000_000.0), make_run("b", other, accuracy=0.5)]

    rows = rows_of(page_of(*runs))

    assert rows["bytes up"] == ["5,000,000", "not told"]
    assert rows["accuracy"] == ["not told", "0.5"]


def test_runs_that_differ_by_their_seed_alone_have_no_table_of_settings(
    make_run: MakeRun, page_of: Callable[..., str]
) -> None:
    page = page_of(make_run("a", seed=1, loss=1.0), make_run("b", seed=2, loss=3.0))

    assert "differ by their seed alone" in page
    assert rows_of(page)["loss"] == ["2 ± 1.4"]


def test_a_run_under_way_and_one_without_rounds_have_a_page(
    make_run: MakeRun, page_of: Callable[..., str]
) -> None:
    under_way = page_of(make_run("under-way"))
    fresh = page_of(make_run("fresh", rows=[]))

    assert "2 of 4 rounds" in under_way
    assert "No run is over" in under_way
    assert "<svg" in under_way
    assert "0 of 4 rounds" in fresh
    assert "No round is over yet" in fresh


def test_figures_that_are_not_finite_are_gaps_and_said(
    make_run: MakeRun, page_of: Callable[..., str]
) -> None:
    rows: Rows = [
        *ROWS,
        {"round": 3, "valid_perplexity": None},
        {"round": 4, "valid_perplexity": 9},
    ]
    page = page_of(make_run("a", rows=rows, test_perplexity=None))

    assert "1 of 4 values are not finite" in page
    assert rows_of(page)["test perplexity"] == ["not finite"]


def test_other_word_lists_are_no_refusal_but_a_warning(
    make_run: MakeRun, page_of: Callable[..., str]
) -> None:
    smaller = ("vocabulary.size=40", "model.vocabulary_size=40")
    page = page_of(make_run("a"), make_run("b", *smaller))

    assert rows_of(page)["vocabulary.size"] == ["50", "40"]
    assert "compare only over the same words" in page


@pytest.mark.parametrize(
    ("line", "told"),
    [('{"round": 2, "valid', "is no row of metrics"), ('{"loss": 1}', "has no round")],
)
def test_a_damaged_line_is_named_with_what_to_do(
    make_run: MakeRun, page_of: Callable[..., str], line: str, told: str
) -> None:
    run = make_run("a")
    metrics = run / "metrics.jsonl"
    metrics.write_text(f'{{"round": 1}}\n{line}\n{{"round": 3}}\n')

    refused = page_of(run)

    assert f"{metrics}:2 {told}" in refused
    assert "take that line out" in refused


def test_runs_that_do_not_compare_are_refused_by_what_differs(
    make_run: MakeRun, page_of: Callable[..., str], tmp_path: Path
) -> None:
    run, other = (
        make_run("a"),
        make_run("b", "data.dataset=ptb", "data.partition=iid", "data.client_count=3"),
    )

    assert f"the same data.dataset, got manual in {run} and ptb in {other}" in page_of(run, other)
    assert "must be given once" in page_of(run, run)
    assert "holds no run" in page_of(tmp_path)


def test_a_name_is_never_markup(make_run: MakeRun, page_of: Callable[..., str]) -> None:
    rows: Rows = [{"round": 1, "<i>loss": 1.0}, {"round": 2, "<i>loss": 2.0}]
    strength = "aggregation.attention_strength=2.0"
    runs = [make_run("<i>a", rows=rows, **{"<i>loss": 1.0}), make_run("<i>b", strength, rows=rows)]
    page = page_of(*runs)

    assert "<i>" not in page
    assert "&lt;i&gt;a" in page
