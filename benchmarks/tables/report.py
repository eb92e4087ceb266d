"""Write a results table as JSON, Markdown and PNG."""

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from benchmarks.tables.definition import TableDefinition
from benchmarks.tables.records import Final, RunRecord, counted_before
from simulation.figures.plots import plot_bars, plot_runs, plot_table

FLOORS = ("unigram", "bigram")
COUNTED_BEFORE = "counted_before_words_alone"
"""Figure of a row: its seeds whose recall took ``<eos>`` for a word."""
MARK = " \\*"
COUNTED = (
    "Perplexity is over every token, `<eos>` and `<unk>` included; recall is over typed words."
)
NOTE = "\\* was [counted before words alone](README.md#recall), and compares with its like only."
BY_HAND = "\n<!-- Written by hand; making the table again keeps what follows. -->\n"

Rows = Mapping[str, Mapping[str, float | None]]


class Writer(Protocol):
    """Write a table, as ``write_report`` does."""

    def __call__(
        self,
        name: str,
        table: TableDefinition,
        rows: Rows,
        folder: Path,
        *,
        command: str,
        runs: Mapping[str, Sequence[RunRecord]],
    ) -> None:
        """Write the table's files into a folder."""


def figures_of(finals: Sequence[Final], names: Sequence[str]) -> dict[str, float | None]:
    """Return each figure's mean over the seeds, and its sample standard deviation.

    A seed without a finite value of the first figure is lost: ``lost`` counts them, and the mean is
    over the others. ``COUNTED_BEFORE`` is there if recall of any seed is of the old kind.
    """
    figures: dict[str, float | None] = {"seeds": len(finals)}
    for name in names:
        values = [
            float(value)
            for final in finals
            if isinstance(value := final.get(name), int | float) and math.isfinite(value)
        ]
        figures[name] = statistics.fmean(values) if values else None
        figures[f"{name}_spread"] = statistics.stdev(values) if len(values) > 1 else None
        figures.setdefault("lost", len(finals) - len(values))
    old = sum(map(counted_before, finals)) if any("recall" in name for name in names) else 0
    return figures | ({COUNTED_BEFORE: old} if old else {})


def mark_of(figures: Mapping[str, float | None], name: str) -> str:
    """Return what stands behind a figure of a row that was counted before words alone."""
    is_of_strip = any(part in name for part in ("recall", "accuracy", "backdoor"))
    return MARK if COUNTED_BEFORE in figures and is_of_strip else ""


def notes_of(rows: Rows) -> list[str]:
    """Return the lines that say what figures of words are over, and explain the mark."""
    if not any("recall" in name for figures in rows.values() for name in figures):
        return []
    marked = any(COUNTED_BEFORE in figures for figures in rows.values())
    return ["", f"{COUNTED} {NOTE}" if marked else COUNTED]


def rows_to_run(table: TableDefinition, runs: Mapping[str, Sequence[RunRecord]]) -> list[str]:
    """Return a line for each row of which runs have not been made."""
    return [
        f"- {row.name}: {len(runs.get(row.name, ()))} of {len(row.seeds)} seeds"
        for row in table.rows
        if len(runs.get(row.name, ())) < len(row.seeds)
    ]


def write_document(
    name: str, table: TableDefinition, rows: Rows, folder: Path, *, command: str, **more: object
) -> None:
    """Write ``NAME.json``: a table's figures for who reads them by a program.

    Args:
        name: Name of the file.
        table: Definition of the rows.
        rows: Figures by row.
        folder: Where to write; it is made if missing.
        command: Command that made the table.
        more: Further contents, as JSON types.
    """
    folder.mkdir(parents=True, exist_ok=True)
    document = {"table": name, "title": table.title, "command": command, "rows": rows, **more}
    (folder / f"{name}.json").write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def write_page(path: Path, table: str) -> None:
    """Write a table's page, and keep what was written below the former one by hand."""
    former = path.read_text() if path.exists() else ""
    path.write_text(table + "".join(former.partition(BY_HAND)[1:]))


def write_report(
    name: str,
    table: TableDefinition,
    rows: Rows,
    folder: Path,
    *,
    command: str,
    runs: Mapping[str, Sequence[RunRecord]],
) -> None:
    """Write ``NAME.json``, ``NAME.md`` and ``NAME.png``.

    Args:
        name: Name of the files.
        table: Definition of the rows.
        rows: Figures by row, baselines first.
        folder: Where to write.
        command: Command that made the table.
        runs: Each row's runs; the picture shows the first.
    """
    write_document(name, table, rows, folder, command=command)
    remarks = [
        *_remarks(table, rows, {row: _by_seed(table, of_row) for row, of_row in runs.items()})
    ]
    write_page(folder / f"{name}.md", _markdown(table, rows, command, remarks))
    first = {row: of_row[0] for row, of_row in runs.items()}
    _draw(table, rows, folder / f"{name}.png", first)


def _markdown(
    table: TableDefinition,
    rows: Mapping[str, Mapping[str, float | None]],
    command: str,
    remarks: Sequence[str],
) -> str:
    columns = [name for name in table.figures if any(name in row for row in _filled(rows))]
    lines = [
        f"# {table.title}",
        "",
        f"Made by `{command}` with the preset `{table.preset}`; mean ± sample standard deviation "
        "over the seeds.",
        *notes_of(rows),
        "",
        "| | " + " | ".join(name.replace("_", " ") for name in columns) + " | seeds |",
        "| --- " * (len(columns) + 2) + "|",
    ]
    for name, figures in rows.items():
        cells = [_cell(figures, figure) for figure in columns]
        lines.append(f"| {name} | {' | '.join(cells)} | {_seeds(figures)} |")
    return "\n".join([*lines, "", *remarks]).rstrip() + "\n"


def _filled(rows: Rows) -> list[set[str]]:
    """Return the names of each row's figures that have a value."""
    return [{name for name, value in row.items() if value is not None} for row in rows.values()]


def _seeds(figures: Mapping[str, float | None]) -> str:
    seeds, lost = figures.get("seeds"), figures.get("lost")
    if seeds is None:
        return ""
    return f"{int(seeds)}" + (f", {int(lost)} lost" if lost else "")


def _cell(figures: Mapping[str, float | None], name: str) -> str:
    value, spread = figures.get(name), figures.get(f"{name}_spread")
    if value is None:
        return ""
    digits = 1 if value > 10 else 4
    told = f"{value:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")
    return told + mark_of(figures, name)


_OfSeeds = Mapping[int, Mapping[str, float]]
"""Figures by seed, each by name."""


def _by_seed(table: TableDefinition, runs: Sequence[RunRecord]) -> _OfSeeds:
    """Return the figures that rows are compared by, of each run that has them."""
    names = {table.figures[0], *table.fractions}
    return {
        run.seed: {
            name: float(value)
            for name in names
            if isinstance(value := run.final.get(name), int | float)
        }
        for run in runs
    }


def _remarks(table: TableDefinition, rows: Rows, runs: Mapping[str, _OfSeeds]) -> Iterator[str]:
    """Say how the rows stand to those they are compared with, by the first figure."""
    first = table.figures[0]
    for reference in table.references:
        for name, figures in rows.items():
            if name in (*FLOORS, *table.references):
                continue
            theirs, others = runs.get(name, {}), runs.get(reference, {})
            ratio = _paired(first, theirs, others)
            if ratio is None:
                value, level = figures.get(first), rows.get(reference, {}).get(first)
                ratio = value / level if value is not None and level is not None else None
            if ratio is None:
                continue
            told = [f"{100 * (ratio - 1):+.1f} % against {reference}"]
            for fraction in table.fractions:
                part = _paired(fraction, theirs, others)
                told += [] if part is None else [f"{fraction.replace('_', ' ')} {part:.3f} of its"]
            yield f"- {name}: {', '.join(told)}."


def _paired(figure: str, theirs: _OfSeeds, others: _OfSeeds) -> float | None:
    """Return the mean over the seeds of the one's figure over the other's with the same seed.

    None unless the other has all of the one's seeds: then their means are to be compared.
    """
    ratios = [
        figures[figure] / others[seed][figure]
        for seed, figures in theirs.items()
        if figure in figures and figure in others.get(seed, {})
    ]
    return statistics.fmean(ratios) if ratios and len(ratios) == len(theirs) else None


def _draw(
    table: TableDefinition,
    rows: Mapping[str, Mapping[str, float | None]],
    path: Path,
    runs: Mapping[str, RunRecord],
) -> None:
    first = table.figures[0]
    done = {
        name: (value, figures.get(f"{first}_spread") or 0.0)
        for name, figures in rows.items()
        if (value := figures.get(first)) is not None
    }
    floors: dict[str, float] = {name: done[name][0] for name in table.references if name in done}
    positions = {row.name: row.x for row in table.rows if row.x is not None}
    curves = {name: run for name, run in runs.items() if name not in table.references}
    if table.setting is not None:
        points = [(positions[name], *done[name]) for name in positions if name in done]
        if points:
            plot_table(
                {table.preset: points},
                path,
                setting=table.setting,
                figure=first,
                levels=floors,
            )
    elif curves and table.curve is not None:
        lines = {name: run.rounds for name, run in curves.items()}
        plot_runs(lines, path, figure=table.curve, levels=floors)
    elif done:
        plot_bars(done, path, figure=first)
