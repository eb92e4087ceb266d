"""Write a results table as JSON, Markdown and PNG."""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from benchmarks.tables.definition import TableDefinition
from simulation.metrics import read_metrics
from simulation.plots import plot_bars, plot_runs, plot_table

FLOORS = ("unigram", "bigram")

Final = Mapping[str, float | int | str | None]
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
        runs: Mapping[str, Sequence[Path]],
    ) -> None:
        """Write the table's files into a folder."""


def figures_of(finals: Sequence[Final], names: Sequence[str]) -> dict[str, float | None]:
    """Return each figure's mean over the seeds, and its sample standard deviation."""
    figures: dict[str, float | None] = {"seeds": len(finals)}
    for name in names:
        values = [
            float(value) for final in finals if isinstance(value := final.get(name), int | float)
        ]
        figures[name] = statistics.fmean(values) if values else None
        figures[f"{name}_spread"] = statistics.stdev(values) if len(values) > 1 else None
    return figures


def write_document(
    name: str, table: TableDefinition, rows: Rows, folder: Path, *, command: str, **more: object
) -> None:
    """Write ``NAME.json``: a table's figures for who reads them by a program.

    Args:
        name: Name of the file.
        table: What the rows are.
        rows: Figures by row.
        folder: Where to write; it is made if missing.
        command: What made the table.
        more: What else belongs to it, as JSON knows it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    document = {"table": name, "title": table.title, "command": command, "rows": rows, **more}
    (folder / f"{name}.json").write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def write_report(
    name: str,
    table: TableDefinition,
    rows: Rows,
    folder: Path,
    *,
    command: str,
    runs: Mapping[str, Sequence[Path]],
) -> None:
    """Write ``NAME.json``, ``NAME.md`` and ``NAME.png``.

    Args:
        name: Name of the files.
        table: What the rows are.
        rows: Figures by row, baselines first.
        folder: Where to write.
        command: What made the table.
        runs: Folders of each row's runs; the picture shows the first.
    """
    write_document(name, table, rows, folder, command=command)
    (folder / f"{name}.md").write_text(_markdown(table, rows, command))
    first = {row: folders[0] for row, folders in runs.items()}
    _draw(table, rows, folder / f"{name}.png", first)


def _markdown(
    table: TableDefinition, rows: Mapping[str, Mapping[str, float | None]], command: str
) -> str:
    lines = [
        f"# {table.title}",
        "",
        f"Made by `{command}` with the preset `{table.preset}`; mean ± sample standard deviation "
        "over the seeds.",
        "",
        "| | " + " | ".join(name.replace("_", " ") for name in table.figures) + " | seeds |",
        "| --- " * (len(table.figures) + 2) + "|",
    ]
    for name, figures in rows.items():
        cells = [_cell(figures, figure) for figure in table.figures]
        seeds = figures.get("seeds")
        lines.append(f"| {name} | {' | '.join(cells)} | {'' if seeds is None else int(seeds)} |")
    return "\n".join([*lines, "", *_remarks(table, rows)]).rstrip() + "\n"


def _cell(figures: Mapping[str, float | None], name: str) -> str:
    value, spread = figures.get(name), figures.get(f"{name}_spread")
    if value is None:
        return ""
    digits = 1 if value > 10 else 4
    return f"{value:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")


def _remarks(table: TableDefinition, rows: Mapping[str, Mapping[str, float | None]]) -> list[str]:
    """Say how the rows stand to those they are compared with, by the first figure."""
    first = table.figures[0]
    remarks = []
    for reference in table.references:
        level = rows.get(reference, {}).get(first)
        for name, figures in rows.items():
            value = figures.get(first)
            if level is None or value is None or name in (*FLOORS, *table.references):
                continue
            remarks.append(f"- {name}: {100 * (value / level - 1):+.1f} % against {reference}.")
    return remarks


def _draw(
    table: TableDefinition,
    rows: Mapping[str, Mapping[str, float | None]],
    path: Path,
    runs: Mapping[str, Path],
) -> None:
    first = table.figures[0]
    done = {
        name: (value, figures.get(f"{first}_spread") or 0.0)
        for name, figures in rows.items()
        if (value := figures.get(first)) is not None
    }
    floors: dict[str, float] = {name: done[name][0] for name in table.references if name in done}
    positions = {row.name: row.x for row in table.rows if row.x is not None}
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
    elif runs and table.curve is not None:
        curves = {name: run for name, run in runs.items() if name not in table.references}
        lines = {name: read_metrics(run) for name, run in curves.items()}
        plot_runs(lines, path, figure=table.curve, levels=floors)
    elif done:
        plot_bars(done, path, figure=first)
