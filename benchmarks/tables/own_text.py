"""Write a table of keyboards: how each user fares with each model, and how many of them lose.

Beside the pooled figures, every user is held against itself: its own test text with a method's
model, with the global model, and with the global model that it trained on by itself.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from benchmarks.tables.definition import TableDefinition
from benchmarks.tables.records import Outcome, RunRecord
from benchmarks.tables.report import (
    FLOORS,
    Rows,
    figures_of,
    mark_of,
    notes_of,
    write_document,
    write_page,
)
from simulation.figures.metrics import Figures
from simulation.figures.plots import write_figure
from simulation.runs.checkpoint import FINE_TUNED_FILE
from simulation.runs.own_figures import (
    Comparison,
    OwnFigures,
    compare,
    mean_figures,
    own_figures,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

T = TypeVar("T")

GLOBAL = "FedAvg"
"""Row that all others are held against; its runs are fine-tuned, too."""

COMPARED = {"accuracy": "top-1 recall", "keystroke_savings": "keystroke savings"}
_DECIMALS = 5


def with_own_text(
    table: TableDefinition, folder: Path, data: Path | None, final: Figures
) -> Outcome:
    """Return a run's figures with those of every user, fine-tuned too where users were.

    Args:
        table: Not needed.
        folder: Folder of the run.
        data: Not needed.
        final: The run's own figures.
    """
    more: dict[str, object] = {"own": own_figures(folder)}
    tuned = folder / FINE_TUNED_FILE
    if tuned.exists():
        epochs = msgspec.json.decode(tuned.read_bytes(), type=dict[int, object])
        more["fine_tuned"] = {str(after): own_figures(folder, fine_tuned=after) for after in epochs}
    return Outcome(final=dict(final), more=more)


def write_own_text(
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
        table: Definition of the rows; the first run is ``GLOBAL``'s.
        rows: Figures by row, baselines first.
        folder: Where to write.
        command: Command that made the table.
        runs: Each row's runs.
    """
    epochs = [int(after) for after in runs[GLOBAL][0].more["fine_tuned"]]
    own = _own(runs, epochs)
    whole = _behind_global(rows, _tuned_rows(table, runs[GLOBAL], epochs))
    best = max((tuned_row(after) for after in epochs), key=lambda row: whole[row]["accuracy"] or 0)
    rivals = (GLOBAL, best)
    compared = {
        figure: {rival: _against(own, rival, figure) for rival in rivals} for figure in COMPARED
    }
    users = {row: _rounded(mean_figures(by_seed)) for row, by_seed in own.items()}
    write_document(
        name,
        table,
        whole,
        folder,
        command=command,
        against=msgspec.to_builtins(compared),
        users=users,
    )
    write_page(folder / f"{name}.md", _markdown(name, table, whole, compared, command))
    _draw(users, rivals, folder / f"{name}.png")


class Against(msgspec.Struct, frozen=True, kw_only=True):
    """Say how users fare with one model against another, over seeds.

    Attributes:
        users: How many there are.
        losing: Users who are worse off: mean over seeds.
        losing_spread: Its sample standard deviation over seeds; None of one seed.
        winning: Users who are better off: mean over seeds.
        quartiles: Quartiles of the difference over users, each user's mean over seeds.
        mean: Mean over users.
        spread: Sample standard deviation over users.
        seeds: How many seeds both models have.
    """

    users: int
    losing: float
    losing_spread: float | None
    winning: float
    quartiles: tuple[float, float, float]
    mean: float
    spread: float
    seeds: int


def tuned_row(epochs: int) -> str:
    """Return the name of the row of a global model that each user trained on by itself."""
    return f"{GLOBAL}, fine-tuned {epochs} epoch{'' if epochs == 1 else 's'}"


def _own(
    runs: Mapping[str, Sequence[RunRecord]], epochs: Sequence[int]
) -> dict[str, list[OwnFigures]]:
    """Return each model's figures of every user, one entry a seed."""
    own = {row: [run.more["own"] for run in of_row] for row, of_row in runs.items()}
    tuned = {
        tuned_row(after): [run.more["fine_tuned"][str(after)] for run in runs[GLOBAL]]
        for after in epochs
    }
    return _behind_global(own, tuned)


def _tuned_rows(
    table: TableDefinition, runs: Sequence[RunRecord], epochs: Sequence[int]
) -> dict[str, dict[str, float | None]]:
    """Return the rows of the fine-tuned models, from the final figures of the global one."""
    return {
        tuned_row(after): figures_of(
            [
                {
                    name: value
                    for name in (*table.figures, "unknown_words")
                    if (value := run.final.get(f"fine_tuned_{after}_{name}")) is not None
                }
                for run in runs
            ],
            table.figures,
        )
        for after in epochs
    }


def _behind_global(rows: Mapping[str, T], tuned: Mapping[str, T]) -> dict[str, T]:
    """Return all rows, those of the fine-tuned models behind that of the model they start from."""
    ordered: dict[str, T] = {}
    for name, row in rows.items():
        ordered[name] = row
        if name == GLOBAL:
            ordered |= tuned
    return ordered


def _against(
    own: Mapping[str, Sequence[OwnFigures]], rival: str, figure: str
) -> dict[str, Against]:
    return {
        row: _over_seeds(by_seed, own[rival], figure)
        for row, by_seed in own.items()
        if row != rival
    }


def _over_seeds(own: Sequence[OwnFigures], rival: Sequence[OwnFigures], figure: str) -> Against:
    """Compare run with run of the same seed, and each user's mean over those seeds."""
    pairs = list(zip(own, rival, strict=False))
    by_seed: list[Comparison] = [compare(mine[figure], theirs[figure]) for mine, theirs in pairs]
    mine, theirs = (mean_figures([pair[place] for pair in pairs]) for place in (0, 1))
    overall = compare(mine[figure], theirs[figure])
    losing = [seed.losing for seed in by_seed]
    return Against(
        users=overall.client_count,
        losing=statistics.fmean(losing),
        losing_spread=statistics.stdev(losing) if len(losing) > 1 else None,
        winning=statistics.fmean(seed.winning for seed in by_seed),
        quartiles=overall.quartiles,
        mean=overall.mean,
        spread=overall.spread,
        seeds=len(pairs),
    )


def _rounded(figures: OwnFigures) -> dict[str, dict[str, float]]:
    return {
        name: {client: round(value, _DECIMALS) for client, value in own.items()}
        for name, own in figures.items()
    }


def _markdown(
    name: str,
    table: TableDefinition,
    rows: Rows,
    compared: Mapping[str, Mapping[str, Mapping[str, Against]]],
    command: str,
) -> str:
    lines = [
        f"# {table.title}",
        "",
        f"Made by `{command}` with the preset `{table.preset}`. Every user is scored on its own "
        "newest fifth with its own model; figures in per cent, mean ± sample standard deviation "
        "over the seeds. *Users* is the mean over users, *worst tenth* that of those who are "
        "served worst.",
        *notes_of(rows),
        "",
        "| | " + " | ".join(_heading(figure) for figure in table.figures) + " | seeds |",
        "| --- " * (len(table.figures) + 2) + "|",
    ]
    for row, figures in rows.items():
        cells = [_cell(figures, figure) for figure in table.figures]
        seeds = figures.get("seeds")
        lines.append(f"| {row} | {' | '.join(cells)} | {'' if seeds is None else int(seeds)} |")
    for figure, by_rival in compared.items():
        order = [row for row in rows if row not in FLOORS]
        mark = max(mark_of(figures, figure) for figures in rows.values())
        lines += ["", *_comparison(COMPARED[figure] + mark, by_rival, order)]
    lines += ["", f"![Difference of keystroke savings over users]({name}.png)"]
    return "\n".join(lines) + "\n"


def _comparison(
    what: str, by_rival: Mapping[str, Mapping[str, Against]], order: Iterable[str]
) -> list[str]:
    """Return the table of one figure: each model against each rival, user by user."""
    lines = [
        f"## User by user: {what}",
        "",
        "Users who lose have a lower figure with this model than with the other, on the same text; "
        "differences in percentage points: first quartile, median and third over users.",
        "",
        "| | " + " | ".join(f"lose against {rival} | difference" for rival in by_rival) + " |",
        "| --- " * (1 + 2 * len(by_rival)) + "|",
    ]
    for row in order:
        cells = [_against_cells(against.get(row)) for against in by_rival.values()]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return lines


def _against_cells(against: Against | None) -> str:
    if against is None:
        return " | "
    spread = "" if against.losing_spread is None else f" ± {against.losing_spread:.1f}"
    quartiles = " / ".join(f"{100 * value:+.2f}" for value in against.quartiles)
    return f"{against.losing:.1f}{spread} of {against.users} | {quartiles}"


def _heading(figure: str) -> str:
    named = figure.replace("accuracy", "top-1").replace("_recall", "").replace("top3", "top-3")
    named = named.replace("_clients_mean", ", users").replace(
        "_clients_worst_decile", ", worst tenth"
    )
    return named.replace("_", " ")


def _cell(figures: Mapping[str, float | None], name: str) -> str:
    value, spread = figures.get(name), figures.get(f"{name}_spread")
    if value is None:
        return ""
    scale, digits = (1, 1) if "perplexity" in name else (100, 2)
    spread_told = "" if spread is None else f" ± {scale * spread:.{digits}f}"
    return f"{scale * value:.{digits}f}{spread_told}{mark_of(figures, name)}"


def _draw(
    users: Mapping[str, Mapping[str, Mapping[str, float]]], rivals: Sequence[str], path: Path
) -> None:
    """Draw how keystroke savings differ over users, a panel for each rival."""
    figure = "keystroke_savings"

    def draw(*panels: "Axes") -> None:
        for axes, rival in zip(panels, rivals, strict=True):
            base = users[rival][figure]
            names = [name for name in users if name != rival and name not in FLOORS]
            points = [
                [100 * (users[name][figure][who] - base[who]) for who in base] for name in names
            ]
            axes.boxplot(points, orientation="horizontal", tick_labels=names, whis=(0, 100))
            for place, own in enumerate(points, start=1):
                axes.plot(own, [place] * len(own), ".", alpha=0.4, color="tab:blue")
            axes.axvline(0, linestyle="--", linewidth=1, color="gray")
            axes.invert_yaxis()
            axes.set_xlabel(f"points of keystrokes saved\nagainst {rival}; a dot a user")

    write_figure(path, draw, panels=len(rivals))
