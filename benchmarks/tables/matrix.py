"""Write a results table of rules against attacks: JSON, and a Markdown matrix for each figure."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.tables.definition import TableDefinition
from benchmarks.tables.records import Outcome, RunRecord
from benchmarks.tables.report import Rows, mark_of, notes_of, write_document, write_page
from benchmarks.tables.robustness import BETWEEN
from simulation.figures.metrics import Figures, read_metrics

_UNREADABLE = 1e6
"""From here on a figure is told as a power of ten: of a perplexity, that its model is destroyed."""


def with_heaviest_round(
    table: TableDefinition, folder: Path, data: Path | None, final: Figures
) -> Outcome:
    """Return a run's figures with the attackers' largest share of the sum in any round.

    Their mean over rounds hides what one round did; and a lost run has a share to tell as well.

    Args:
        table: Not needed.
        folder: Folder of the run.
        data: Not needed.
        final: The run's own figures; none of a lost run.
    """
    shares = [row.get("attackers_weight") for row in read_metrics(folder)]
    weighed = [float(share) for share in shares if isinstance(share, int | float)]
    return Outcome(final={**final, "attackers_largest_weight": max(weighed, default=None)})


def write_matrix(
    name: str,
    table: TableDefinition,
    rows: Rows,
    folder: Path,
    *,
    command: str,
    runs: Mapping[str, Sequence[RunRecord]],
    remarks: Sequence[str] = (),
) -> None:
    """Write ``NAME.json`` and ``NAME.md``: a line for each rule, a column for each attack.

    A run whose clients all diverged, or whose model has no finite first figure, is lost, and the
    first figure says how many are.

    Args:
        name: Name of the files.
        table: Definition of the rows; each is named after its rule and its attack.
        rows: Figures by row, of those that have run.
        folder: Where to write.
        command: Command that made the table.
        runs: Each row's runs; only their number is shown.
        remarks: Lines below the matrices.
    """
    write_document(name, table, rows, folder, command=command)
    names = [tuple(row.name.split(BETWEEN)) for row in table.rows]
    rules = list(dict.fromkeys(rule for rule, _ in names))
    attacks = list(dict.fromkeys(attack for _, attack in names))
    counts = sorted({len(of_row) for of_row in runs.values() if of_row}) or [0]
    seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    lines = [
        f"# {table.title}",
        "",
        f"Made by `{command}`; {seeds} seed(s) a cell; lost runs are left out of means.",
        *notes_of(rows),
    ]
    for figure in table.figures:
        mark = max((mark_of(of_row, figure) for of_row in rows.values()), default="")
        named = figure.replace("_", " ") + mark
        lines += ["", f"## {named}", "", f"| | {' | '.join(attacks)} |"]
        lines.append("| --- " * (len(attacks) + 1) + "|")
        for rule in rules:
            cells = [
                _cell(rows.get(f"{rule}{BETWEEN}{attack}", {}), figure, table.figures[0])
                for attack in attacks
            ]
            lines.append(f"| {rule} | {' | '.join(cells)} |")
    write_page(folder / f"{name}.md", "\n".join([*lines, *remarks]) + "\n")


def _cell(figures: Mapping[str, float | None], name: str, first: str) -> str:
    value, spread = figures.get(name), figures.get(f"{name}_spread")
    seeds, lost = figures.get("seeds") or 0, figures.get("lost") or 0
    tells_lost = name == first and lost > 0
    if value is None:
        # Not yet run, without such a figure, or lost.
        return "lost" if tells_lost else ""
    form = ".3f" if value < 10 else ".1f" if value < _UNREADABLE else ".0e"
    written = f"{value:{form}}" + ("" if spread is None else f" ± {spread:{form}}")
    return written + (f", {lost:.0f} of {seeds:.0f} lost" if tells_lost else "")
