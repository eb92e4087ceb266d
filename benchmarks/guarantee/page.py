"""Write the table of the keyboard under a guarantee: its figures, its promises, what is missing."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from benchmarks.guarantee.cells import CELLS, PRESET, ROUNDS, Cell, candidate, promise
from benchmarks.guarantee.rows import AT_HAND, BEFORE, SCRATCH, START, cells_by_row, row_name
from benchmarks.guarantee.started import starts_of
from benchmarks.tables.definition import TableDefinition
from benchmarks.tables.records import RunRecord
from benchmarks.tables.report import Rows, rows_to_run, write_document, write_page

_COLUMNS = ("test_top1_recall", "test_top3_recall", "keystroke_savings")
_HEADS = ("", "ε", "people", "z", "cohort", "rounds", "top-1", "top-3", "keys saved", "seeds")


class CellFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment of the table, for readers of its JSON.

    Attributes:
        epsilon: ε of the whole run, as the accountant counts it.
        budget: The ε that it has to stay within.
        noise_std: Noise on the mean of a round, in parameter units, before the server's step.
        places: Places of a round, of which the cohort fills a part.
    """

    population_size: int
    cohort: int
    rounds: int
    places: int
    delta: float
    noise_multiplier: float
    budget: float
    epsilon: float
    noise_std: float


def write_guarantee(
    name: str,
    table: TableDefinition,
    rows: Rows,
    folder: Path,
    *,
    command: str,
    runs: Mapping[str, Sequence[RunRecord]],
) -> None:
    """Write ``NAME.json`` and ``NAME.md``; arguments as of ``write_report``."""
    cells = cells_by_row()
    facts = {row: msgspec.to_builtins(facts_of(cell)) for row, cell in cells.items()}
    write_document(name, table, rows, folder, command=command, deployments=facts)
    lines = [
        f"# {table.title}",
        "",
        f"Made by `{command}` with the preset `{PRESET}`; mean ± sample standard deviation over "
        "the seeds. Recall is over typed words.",
        "",
        *_starts(runs),
        *_figures(rows, cells),
        *_losses(rows),
        *_promises(),
        *_how(),
        *_missing(table, runs),
    ]
    write_page(folder / f"{name}.md", "\n".join(lines) + "\n")


def facts_of(cell: Cell) -> CellFacts:
    """Return a deployment's numbers; the accountant counts its epsilon."""
    promised, deployment = promise(cell), cell.deployment
    return CellFacts(
        population_size=cell.population_size,
        cohort=cell.cohort,
        rounds=deployment.rounds,
        places=promised.slot_count,
        delta=deployment.delta,
        noise_multiplier=cell.noise_multiplier,
        budget=cell.epsilon,
        epsilon=promised.epsilon,
        noise_std=promised.noise_std,
    )


def _starts(runs: Mapping[str, Sequence[RunRecord]]) -> Iterator[str]:
    """Name the shipped start by its digest, or warn that runs began with several."""
    found = starts_of([run for of_row in runs.values() for run in of_row])
    if found:
        told = ", ".join(f"`{digest[:16]}`" for digest in found)
        mixed = "" if len(found) == 1 else "; rows of different starts do not compare"
        yield f"Start: `english-start.sotto`, SHA-256 {told}{mixed}."
        yield ""


def _figures(rows: Rows, cells: Mapping[str, Cell]) -> Iterator[str]:
    """Give every row that has run, and the bigram that was counted on the same text."""
    yield f"| {' | '.join(_HEADS)} |"
    yield "| --- " * len(_HEADS) + "|"
    for name, figures in rows.items():
        cell = cells.get(name)
        if cell is not None:
            start = SCRATCH if name.startswith(SCRATCH) else START
            facts = [
                start,
                f"{cell.epsilon:g}",
                f"{cell.population_size:,}",
                f"{cell.noise_multiplier:.2f}",
                f"{cell.cohort:,}",
                str(ROUNDS),
            ]
        elif name in (row_name(START, None), row_name(SCRATCH, None)):
            facts = [name, "none", "", "0", "", str(ROUNDS)]
        else:
            facts = [name, "", "", "", "", "0" if name == BEFORE else ""]
        seeds = figures.get("seeds")
        cells_of_row = [*facts, *(_percent(figures, one) for one in _COLUMNS)]
        yield f"| {' | '.join(cells_of_row)} | {'' if seeds is None else f'{seeds:.0f}'} |"


def _percent(figures: Mapping[str, float | None], name: str) -> str:
    # Counted models have other names for the same figures.
    value = figures.get(name)
    if value is None:
        return "lost" if figures.get("lost") else ""
    spread = figures.get(f"{name}_spread")
    return f"{100 * value:.1f}" + ("" if spread is None else f" ± {100 * spread:.1f}") + " %"


def _losses(rows: Rows) -> Iterator[str]:
    """Say what each budget costs against the same run without noise."""
    without = rows.get(row_name(START, None), {})
    told = []
    for cell in CELLS:
        figures = rows.get(row_name(START, cell), {})
        differences = [
            f"{100 * (mine - theirs):+z.1f} points of {named}"
            for figure, named in zip(_COLUMNS, ("top-1", "top-3", "keys"), strict=True)
            if (mine := figures.get(figure)) is not None
            and (theirs := without.get(figure)) is not None
        ]
        if differences:
            told.append(
                f"- ε = {cell.epsilon:g}, {cell.population_size:,} people: "
                f"{', '.join(differences)}."
            )
    if told:
        yield from ("", "## What epsilon costs, against the same run without noise", "", *told)


def _promises() -> Iterator[str]:
    """Give the accountant's count of every cell."""
    yield from ("", "## What is promised", "")
    yield (
        "One person, all rounds together, against readers of the released models; the coordinator "
        "sees clipped updates. The draw is a secret coin for each enrolled person in every round."
    )
    yield ""
    yield "| people | budget | ε, counted | δ | z | cohort | places | noise on the mean |"
    yield "| --- " * 8 + "|"
    for cell in CELLS:
        one = facts_of(cell)
        yield (
            f"| {one.population_size:,} | {one.budget:g} | {one.epsilon:.3f} | {one.delta:.2g} | "
            f"{one.noise_multiplier:.2f} | {one.cohort:,} | {one.places:,} | {one.noise_std:.2g} |"
        )


def _how() -> Iterator[str]:
    """Say that populations are extrapolated, and how."""
    tried = candidate(CELLS[0])
    yield from ("", "## Extrapolated: nobody has 10,000 people here", "")
    yield (
        f"The runs have the 159 people of the text messages, {AT_HAND} in a round. What a "
        "deployment would add to the mean of its cohort is added to the mean of these, as "
        "`sotto-simulate tune` does: z times the sensitivity of the aggregate among the "
        f"deployment's places (clipping norm {tried.clipping_norm:g}, κ = "
        f"{tried.attention_strength:g}). The server's step is shortened by the share of places "
        "that stay empty. So noise, step and epsilon are those of the deployment. The mean is "
        "not: that thousands of people of the same kind would have the mean of "
        f"{AT_HAND} is an assumption. The mean of more people is less erratic. Without noise "
        "nothing depends on how many people there are."
    )


def _missing(table: TableDefinition, runs: Mapping[str, Sequence[RunRecord]]) -> Iterator[str]:
    """Name the runs that have not been made."""
    if missing := rows_to_run(table, runs):
        yield from ("", "## Not run", "", "The command goes on with these.", "", *missing)
