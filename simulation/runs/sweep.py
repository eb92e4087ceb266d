"""Run a configuration over lists of settings and seeds, and say what the settings change.

Every combination is a run in its own folder, so an interrupted sweep goes on where it stopped. A
seed whose model diverged is counted as lost; the mean is over the others. Results go to
``sweep.json``, ``sweep.md`` and ``sweep.png``.
"""

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from privacy.foundation.atomic_files import READABLE, write_atomically
from simulation.config.overrides import Override, with_setting
from simulation.figures.metrics import Value, read_metrics, round_of
from simulation.figures.over_seeds import over_seeds
from simulation.figures.plots import plot_bars, plot_table
from simulation.figures.threshold import Threshold

_UNSAFE = re.compile(r"[^A-Za-z0-9.=_-]+")


class Cell(NamedTuple):
    """One combination of settings, to be run once a seed.

    ``choices`` has each varied setting's value by path, or every setting's if none varies.
    """

    choices: dict[str, Any]  # TOML values.
    tables: dict[str, Any]
    name: str


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One combination over its seeds.

    Attributes:
        choices: Value of each varied setting, as text.
        seeds: Seeds that reached the figure.
        mean: Mean over those seeds; None if none reached it.
        spread: Sample standard deviation; 0 for one seed, None if none reached it.
        missed: Seeds that never met the threshold within the rounds; absent without one.
        lost: Seeds whose model diverged; absent with a threshold.
    """

    choices: dict[str, str]
    seeds: list[int]
    mean: float | None
    spread: float | None
    missed: list[int] | msgspec.UnsetType = msgspec.UNSET
    lost: list[int] | msgspec.UnsetType = msgspec.UNSET


# Starts one cell with a seed in a folder, resuming what lies there, and returns what waits for its
# final figures.
StartCell = Callable[[Cell, int, Path], Callable[[], Mapping[str, Value]]]


def cells(tables: Mapping[str, Any], overrides: Sequence[Override]) -> list[Cell]:
    """Return every combination of the overrides' values, the last setting varying fastest."""
    combinations = itertools.product(*(override.values for override in overrides))
    # What is the same in every row is said nowhere in the table, and is no axis of the picture.
    varied = {one.name for one in overrides if len(one.values) > 1}
    told = varied or {one.name for one in overrides}
    return [_cell(tables, overrides, values, told) for values in combinations]


def run_sweep(
    grid: Sequence[Cell],
    seeds: Sequence[int],
    out: Path,
    *,
    figure: str,
    threshold: Threshold | None,
    start_cell: StartCell,
) -> list[Row]:
    """Run every cell with every seed, all of them different, and write the results.

    They report the final ``figure``, or the rounds until ``threshold`` if there is one.

    Raises:
        ValueError: If a run did not report the figure.
    """
    started = [
        {seed: start_cell(cell, seed, _folder(out, cell, seed)) for seed in seeds} for cell in grid
    ]
    rows = []
    for cell, results in zip(grid, started, strict=True):
        values: dict[int, Value] = {}
        for seed, result in results.items():
            folder, final = _folder(out, cell, seed), result()
            values[seed] = (
                _final(final, figure, folder)
                if threshold is None
                else rounds_to(read_metrics(folder), threshold)
            )
        rows.append(_row(cell, values, has_threshold=threshold is not None))
        # Written after every cell, so that a long sweep can be read while it runs.
        write_results(rows, out, figure=threshold.name if threshold else figure)
    return rows


def _folder(out: Path, cell: Cell, seed: int) -> Path:
    return out / cell.name / f"seed-{seed}"


def rounds_to(rows: Iterable[Mapping[str, Value]], threshold: Threshold) -> int | None:
    """Return the first round that reached the threshold, or None."""
    for row in rows:
        if threshold.is_reached(row):
            return round_of(row)
    return None


def write_results(rows: Sequence[Row], out: Path, *, figure: str) -> None:
    """Write the table as JSON and Markdown and the picture as PNG."""
    document = {"figure": figure, "rows": rows}
    _write_text(out / "sweep.json", msgspec.json.format(msgspec.json.encode(document)).decode())
    _write_text(out / "sweep.md", markdown(rows, figure))
    reached = [row for row in rows if row.mean is not None]
    if reached:
        _plot(reached, out / "sweep.png", figure)


def markdown(rows: Sequence[Row], figure: str) -> str:
    """Return the rows as a Markdown table: mean ± sample standard deviation over seeds."""
    names = list(rows[0].choices)
    headings = [*names, figure, "seeds"]
    if rows[0].missed is not msgspec.UNSET:
        headings.append("seeds that missed")
    lines = ["| " + " | ".join(headings) + " |", "| " + " | ".join("---" for _ in headings) + " |"]
    for row in rows:
        cells_of_row = [*row.choices.values(), _value(row), _seeds(row)]
        if row.missed is not msgspec.UNSET:
            cells_of_row.append(str(len(row.missed)))
        lines.append("| " + " | ".join(cells_of_row) + " |")
    return "\n".join(lines) + "\n"


def _value(row: Row) -> str:
    if row.mean is None:
        return "lost" if row.lost else "-"
    spread = f" ± {row.spread:.2g}" if row.spread is not None and len(row.seeds) > 1 else ""
    return f"{row.mean:.4g}{spread}"


def _seeds(row: Row) -> str:
    """Return how many seeds were run to this figure, and how many of them are lost."""
    if not row.lost:
        return str(len(row.seeds))
    return f"{len(row.seeds) + len(row.lost)}, {len(row.lost)} lost"


def _cell(
    tables: Mapping[str, Any],
    overrides: Sequence[Override],
    values: Sequence[Any],
    told: Collection[str],
) -> Cell:
    changed = dict(tables)
    choices = {}
    for override, value in zip(overrides, values, strict=True):
        changed = with_setting(changed, override.path, value)
        if override.name in told:
            choices[override.name] = value
    name = "_".join(f"{path}={value}" for path, value in choices.items()) or "base"
    return Cell(choices, changed, _UNSAFE.sub("-", name))


def _row(cell: Cell, values: Mapping[int, Value], *, has_threshold: bool) -> Row:
    found = over_seeds(values)
    without = list(found.lost)
    return Row(
        choices={path: str(value) for path, value in cell.choices.items()},
        seeds=list(found.seeds),
        mean=found.mean,
        spread=found.spread,
        missed=without if has_threshold else msgspec.UNSET,
        lost=msgspec.UNSET if has_threshold else without,
    )


def _final(figures: Mapping[str, Value], figure: str, folder: Path) -> float | None:
    """Return the figure of a run; None, as its file has it, where it is not finite."""
    value = figures.get(figure, "")
    if isinstance(value, str):
        numeric = sorted(name for name, one in figures.items() if isinstance(one, int | float))
        raise ValueError(f"{folder} reports no {figure}; choose one of {numeric}")
    return None if value is None else float(value)


def _plot(rows: Sequence[Row], path: Path, figure: str) -> None:
    first, *others = rows[0].choices or [""]
    if all(_is_number(row.choices.get(first, "")) for row in rows):
        lines: dict[str, list[tuple[float, float, float]]] = {}
        for row in rows:
            name = ", ".join(f"{key} {row.choices[key]}" for key in others) or figure
            point = (float(row.choices[first]), row.mean or 0.0, row.spread or 0.0)
            lines.setdefault(name, []).append(point)
        plot_table(lines, path, setting=first, figure=figure)
    else:
        bars = {
            ", ".join(row.choices.values()): (row.mean or 0.0, row.spread or 0.0) for row in rows
        }
        plot_bars(bars, path, figure=figure)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode(), mode=READABLE)
