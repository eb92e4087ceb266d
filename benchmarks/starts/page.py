"""Write what a start, adaptation and one's own words add, and for whom."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import add
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.starts.measuring import ALONE, WITH_WORDS, Person
from benchmarks.starts.rows import PEOPLE, SCRATCH, SHARED
from benchmarks.tables.definition import TableDefinition
from benchmarks.tables.records import RunRecord
from benchmarks.tables.report import (
    COUNTED,
    FLOORS,
    Rows,
    write_document,
    write_page,
    write_report,
)
from simulation.figures.own_words import Typed

KEYBOARDS = {
    "start alone": ("start", ALONE),
    "start, own words": ("start", WITH_WORDS),
    "shared": ("shared", ALONE),
    "adapted": ("adapted", ALONE),
    "shared, own words": ("shared", WITH_WORDS),
    "all: adapted, own words": ("adapted", WITH_WORDS),
}
"""The keyboards made of a run from the start: a model, and whether own words stand beside it."""

MOST_ACTIVE = 50
"""As many as the table ``keyboard-personalisation`` is about, those who wrote most."""

_FOLLOWED = "valid_perplexity"


class Line(NamedTuple):
    """One row of the page, each figure once a seed, in per cent.

    Attributes:
        losing: People who save fewer keys than with the shared model.
        largest_loss: The most that one of them loses, in points of keys.
    """

    top1: Sequence[float]
    top3: Sequence[float]
    keys: Sequence[float] = ()
    losing: Sequence[float] = ()
    largest_loss: Sequence[float] = ()


def write_people(
    name: str,
    table: TableDefinition,
    rows: Rows,
    folder: Path,
    *,
    command: str,
    runs: Mapping[str, Sequence[RunRecord]],
) -> None:
    """Write ``NAME.json`` and ``NAME.md``; a table that is not about people as any other."""
    if table.figures != PEOPLE:
        write_report(name, table, rows, folder, command=command, runs=runs)
        return
    lines = {**_floors(runs), **_lines(runs, _people)}
    active = _lines(runs, _most_active)
    kept, of_active = ({row: line._asdict() for row, line in of.items()} for of in (lines, active))
    missing = list(_missing(table, runs))
    until = _until(runs)
    write_document(
        name,
        table,
        rows,
        folder,
        command=command,
        people=kept,
        most_active=of_active,
        missing=missing,
        until=until,
    )
    people = next((len(_people(run)) for run in runs.get(SHARED, ())), 0)
    page = [*_heading(table, command, people), *_table(lines)]
    if people > MOST_ACTIVE:
        page += ["", *_of_active(), *_table(active)]
    starts = {run.more["start_sha256"] for run in runs.get(SHARED, ())}
    if starts:
        page += ["", f"SHA-256 of the start's parameters: {', '.join(sorted(starts))}."]
    if until:
        page += ["", *_rounds(until)]
    if missing:
        page += ["", "Not run yet; the command goes on with them: " + "; ".join(missing) + "."]
    write_page(folder / f"{name}.md", "\n".join(page) + "\n")


def _floors(runs: Mapping[str, Sequence[RunRecord]]) -> dict[str, Line]:
    """Return what counting words comes to."""
    lines: dict[str, Line] = {}
    for run in runs.get(SHARED, ())[:1]:
        for floor in FLOORS:
            figures = run.more["floors"][floor]
            top1, top3 = (100 * figures[f"test_{top}_recall"] for top in ("top1", "top3"))
            lines[floor] = Line((top1,), (top3,))
    return lines


def _lines(
    runs: Mapping[str, Sequence[RunRecord]], people: Callable[[RunRecord], Mapping[str, Person]]
) -> dict[str, Line]:
    """Return the keyboards of the shared model and the other runs, by some of each run's people."""
    lines: dict[str, Line] = {}
    started = [people(run) for run in runs.get(SHARED, ())]
    for keyboard, place in KEYBOARDS.items():
        # A start is the same whatever the seed of the run.
        of_seeds = started[:1] if place[0] == "start" else started
        if of_seeds:
            lines[keyboard] = _line(of_seeds, place)
    for row, of_row in runs.items():
        if row != SHARED:
            measured = [people(run) for run in of_row]
            lines[row] = _line(measured, ("shared", ALONE), against=None)
    return lines


def _people(run: RunRecord) -> dict[str, Person]:
    return msgspec.convert(run.more["people"], dict[str, Person])


def _most_active(run: RunRecord) -> dict[str, Person]:
    people = _people(run)
    most = sorted(people, key=lambda client: (-people[client].words_before, client))
    return {client: people[client] for client in most[:MOST_ACTIVE]}


def _line(
    seeds: Sequence[Mapping[str, Person]],
    place: tuple[str, str],
    *,
    against: tuple[str, str] | None = ("shared", ALONE),
) -> Line:
    sums = [reduce(add, (_typed(one, place) for one in people.values())) for people in seeds]
    gains: list[list[float]] = []
    if against is not None and against != place:
        gains = [[_gain(one, place, against) for one in people.values()] for people in seeds]
    return Line(
        top1=[100 * one.top1_hits / one.words for one in sums],
        top3=[100 * one.top3_hits / one.words for one in sums],
        keys=[100 * one.savings for one in sums],
        losing=[sum(value < 0 for value in of_seed) for of_seed in gains],
        largest_loss=[max(0.0, -min(of_seed)) for of_seed in gains],
    )


def _typed(person: Person, place: tuple[str, str]) -> Typed:
    model, way = place
    return person.typed[model][way]


def _gain(person: Person, place: tuple[str, str], against: tuple[str, str]) -> float:
    return 100 * (_typed(person, place).savings - _typed(person, against).savings)


def _missing(table: TableDefinition, runs: Mapping[str, Sequence[RunRecord]]) -> Iterator[str]:
    for row in table.rows:
        done = {run.seed for run in runs.get(row.name, ())}
        for seed in row.seeds:
            if seed not in done:
                yield f"{row.name}, seed {seed}"


def _until(runs: Mapping[str, Sequence[RunRecord]]) -> dict[str, object]:
    """Return the best that was reached from scratch, and when each run was as good."""
    of_rounds = (row.get(_FOLLOWED) for run in runs.get(SCRATCH, ()) for row in run.rounds)
    # A round that diverged has none.
    scratch = [float(figure) for figure in of_rounds if figure is not None]
    if not scratch:
        return {}
    goal = min(scratch)
    reached = {
        f"{row}, seed {run.seed}": next(
            (at["round"] for at in run.rounds if float(at.get(_FOLLOWED) or 1e9) <= goal), None
        )
        for row, of_row in runs.items()
        for run in of_row
    }
    return {"figure": _FOLLOWED, "goal": goal, "reached": reached}


def _heading(table: TableDefinition, command: str, people: int) -> Iterator[str]:
    everybody = f"Each of {people} people" if people else "Everybody"
    yield f"# {table.title}"
    yield ""
    yield (
        f"Made by `{command}` with the preset `{table.preset}`. {everybody} is "
        "measured on the newest fifth of their own messages, which nobody trained on; figures in "
        f"per cent, mean ± sample standard deviation over the seeds. {COUNTED} "
        "*Lose*: people who save fewer keys than with the shared model, and the most that one of "
        "them loses, in points."
    )
    yield ""


def _table(lines: Mapping[str, Line]) -> Iterator[str]:
    yield "| | top-1 | top-3 | keys saved | lose | largest loss | seeds |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for row, line in lines.items():
        seeds = "" if row in FLOORS else str(max(len(line.top3), len(line.keys)))
        cells = (*map(_spread(2), line[:3]), *map(_spread(1), line[3:]), seeds)
        yield f"| {row} | {' | '.join(cells)} |"


def _of_active() -> Iterator[str]:
    yield (
        f"The same of the {MOST_ACTIVE} who wrote most, on whom "
        "[keyboard-personalisation](keyboard-personalisation.md) is measured:"
    )
    yield ""


def _rounds(until: Mapping[str, object]) -> Iterator[str]:
    goal, reached = until["goal"], until["reached"]
    yield (
        f"The best perplexity that was reached from scratch is {goal:.1f}, on the older half of "
        "the newest fifth. Round in which each run first was as good:"
    )
    yield ""
    if isinstance(reached, Mapping):
        for run, at in reached.items():
            yield f"- {run}: {'not reached' if at is None else at}"


def _spread(digits: int) -> Callable[[Sequence[float]], str]:
    def told(values: Sequence[float]) -> str:
        if not values:
            return ""
        mean = f"{statistics.fmean(values):.{digits}f}"
        return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"

    return told
