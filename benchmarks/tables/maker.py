"""Make results tables run by run, and go on where a stopped command ended.

A finished run is a line of ``TABLE.jsonl`` below ``--runs`` and is not made again; one under way
lies in a folder below ``--work`` and goes on. After each run the table is written anew to ``--out``
as JSON, Markdown and PNG. Short runs keep several processors busy where commands with
``--workers 1`` and a ``--share`` each run side by side; the same command without a share then
writes the table.
"""

import argparse
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from benchmarks.tables.definition import Row, TableDefinition
from benchmarks.tables.records import (
    Outcome,
    RunRecord,
    append_record,
    check_one_kind,
    find_record,
    rounds_with,
)
from benchmarks.tables.report import Writer, figures_of, write_report
from simulation.config.overrides import parse_override
from simulation.config.simulation import SimulationConfig, config_from, read_tables, with_settings
from simulation.figures.baselines import baseline_figures
from simulation.figures.metrics import Figures
from simulation.figures.progress import ProgressReport, tell
from simulation.population.dealing import build_population
from simulation.population.partition_record import keep_partition
from simulation.population.population import Population, as_text
from simulation.rounds.attendance import SimulationError
from simulation.runs.runner import RunOptions, run_simulation
from simulation.workers.processes import processor_count

T = TypeVar("T")
Measure = Callable[[TableDefinition, Path, Path | None, Figures], Outcome]
"""Measure a run by its table, its folder, the folder of data and its final figures, if any."""


@dataclass(frozen=True)
class Share:
    """Say which runs of a table are a command's: the I-th of every N, as ``I/N`` is read.

    Attributes:
        first: Place of the first, from 0.
        of: N.
    """

    first: int = 0
    of: int = 1

    def taken(self, runs: Sequence[T]) -> Sequence[T]:
        """Return this share of all runs."""
        return runs[self.first :: self.of]

    @classmethod
    def read(cls, text: str) -> Self:
        """Read ``I/N``.

        Raises:
            ArgumentTypeError: If it is anything else.
        """
        part, slash, of = text.partition("/")
        if not (slash and part.isdecimal() and of.isdecimal() and 1 <= int(part) <= int(of)):
            raise argparse.ArgumentTypeError(
                f"a share must be I/N with I from 1 to N, such as 1/2, got {text!r}"
            )
        return cls(int(part) - 1, int(of))


class Maker:
    """Run what is missing of a table and write it."""

    def __init__(
        self, arguments: argparse.Namespace, module: str, write: Writer, measure: Measure
    ) -> None:
        self._write = write
        self._measure = measure
        self._data: Path | None = arguments.data
        self._runs: Path = arguments.runs
        self._work: Path = arguments.work
        self._out: Path = arguments.out
        self._workers: int = arguments.workers or processor_count()
        self._together: int = arguments.together
        self._device: str = arguments.device
        self._share: Share = arguments.share
        self._rounds: tuple[str, ...] = (
            () if arguments.rounds is None else (f"rounds.cap={arguments.rounds}",)
        )
        self._module = module
        self._said = "" if arguments.rounds is None else f" --rounds {arguments.rounds}"
        self._populations: dict[object, Population] = {}

    def run_share(self, name: str, table: TableDefinition) -> None:
        """Run this command's part of a table's runs, and write no table."""
        for row, seed in self._share.taken(seed_by_seed(table)):
            self._run(name, table, row, seed)

    def make(self, name: str, table: TableDefinition) -> dict[str, dict[str, float | None]]:
        """Run every row with every seed and return the figures by row."""
        floors = self._floors(table)
        rows = dict(floors)
        runs: dict[str, list[RunRecord]] = {row.name: [] for row in table.rows}
        command = f"python -m {self._module} --data DATA --only {name}{self._said}"
        for row, seed in seed_by_seed(table):
            runs[row.name].append(self._run(name, table, row, seed))
            done = {other: of_row for other, of_row in runs.items() if of_row}
            rows = {
                **floors,
                **{
                    other: figures_of([run.final for run in of_row], table.figures)
                    for other, of_row in done.items()
                },
            }
            self._write(name, table, rows, self._out, command=command, runs=done)
        return rows

    def _floors(self, table: TableDefinition) -> dict[str, dict[str, float | None]]:
        """Return what counting words comes to, where the table is about words."""
        if not table.counts_words:
            return {}
        population = self._population(configured(table)[0])
        return {
            floor: dict(figures) for floor, figures in baseline_figures(as_text(population)).items()
        }

    def _run(self, name: str, table: TableDefinition, row: Row, seed: int) -> RunRecord:
        """Return the record of a run, which is made first if it is missing."""
        config, tables = configured(table, *row.settings, *self._rounds, f"seed={seed}")
        of_table, of_row = row.run or (name, row.name)
        records = self._runs / f"{of_table}.jsonl"
        found = find_record(records, of_row, seed, tables)
        if found is not None:
            return found
        if config.vocabulary is not None:
            check_one_kind(records)
        folder = self._work / of_table / _folder_name(of_row, tables)
        outcome = self._measure(
            table, folder, self._data, self._simulate(table, row, config, tables, folder)
        )
        record = RunRecord(
            row=of_row, seed=seed, configuration=tables, **msgspec.structs.asdict(outcome)
        )
        append_record(records, record)
        return record

    def _simulate(
        self,
        table: TableDefinition,
        row: Row,
        config: SimulationConfig,
        tables: dict[str, Any],  # TOML values.
        folder: Path,
    ) -> Figures:
        population = self._population(config)
        if population.partition is not None:
            keep_partition(folder, population.partition)
        with ProgressReport(
            f"{row.name}, seed {config.seed}", first_round=1, last_round=config.rounds.cap
        ) as report:
            options = RunOptions(
                worker_count=self._workers,
                reporter=report,
                together=self._together,
                device=self._device,
            )
            try:
                return run_simulation(config, tables, population, folder, options)
            except SimulationError as error:
                if not table.may_be_lost:
                    raise
                tell([f"{row.name}, seed {config.seed} is lost: {error}"])
                return {}

    def _population(self, config: SimulationConfig) -> Population:
        key = (config.data, config.vocabulary)
        if key not in self._populations:
            self._populations[key] = build_population(config, self._data)
        return self._populations[key]


# The dictionary holds TOML tables: values of any TOML type.
def configured(table: TableDefinition, *settings: str) -> tuple[SimulationConfig, dict[str, Any]]:
    """Return the table's preset with its own and some more settings changed.

    Raises:
        SettingsError: If a setting does not exist or cannot be.
    """
    overrides = [parse_override(text) for text in (*table.settings, *settings)]
    tables = with_settings(read_tables(table.preset), overrides)
    return config_from(tables, table.preset), tables


def seed_by_seed(table: TableDefinition) -> list[tuple[Row, int]]:
    """Return the runs of a table, the first seed of every row before the second of any.

    A command that is stopped then leaves a table in which all rows can be compared.
    """
    runs = [(row, seed) for row in table.rows for seed in row.seeds]
    return sorted(runs, key=lambda run: run[1])


def _folder_name(row: str, tables: Mapping[str, Any]) -> str:  # TOML values.
    """Return a folder's name in plain letters, which no run of other settings or seed has."""
    digest = hashlib.sha256(msgspec.json.encode(tables, order="deterministic")).hexdigest()
    return f"{re.sub('[^A-Za-z0-9._-]+', '-', row)}-{digest[:12]}"


def with_curve(table: TableDefinition, folder: Path, data: Path | None, final: Figures) -> Outcome:
    """Return a run's figures and the curve that its table's picture shows."""
    rounds = rounds_with(folder, table.curve) if table.curve is not None else []
    return Outcome(final=dict(final), rounds=rounds)


def flat(tables: Mapping[str, Mapping[str, Mapping[str, float | None]]]) -> dict[str, float]:
    """Return every figure under ``table.row.figure``."""
    return {
        f"{table}.{row}.{figure}": value
        for table, rows in tables.items()
        for row, figures in rows.items()
        for figure, value in figures.items()
        if value is not None
    }


def make_tables(
    module: str,
    description: str,
    tables: Mapping[str, TableDefinition],
    quick: Mapping[str, TableDefinition],
    *,
    write: Writer = write_report,
    measure: Measure = with_curve,
) -> None:
    """Make the tables that the command line asks for.

    Args:
        module: Name that the command is started by, for the record.
        description: First line of ``--help``.
        tables: Every table by name.
        quick: Table that ``--quick`` makes instead, in a temporary folder.
        write: Writes a table after each of its runs.
        measure: Says what is kept of a finished run.
    """
    arguments = _parser(description, tables).parse_args()
    if arguments.data is None and "SOTTO_DATA" in os.environ:
        arguments.data = Path(os.environ["SOTTO_DATA"])
    if arguments.list:
        for name, table in tables.items():
            print(f"{name:22} {_time(table):>23}: {table.title}")
        return
    with tempfile.TemporaryDirectory() as scratch:
        chosen = {name: tables[name] for name in arguments.only or tables}
        if arguments.quick:
            chosen = dict(quick)
            arguments.runs, arguments.work = Path(scratch, "runs"), Path(scratch, "work")
            arguments.out = Path(scratch, "results")
        maker = Maker(arguments, module, write, measure)
        if arguments.share.of > 1:
            for name, table in chosen.items():
                maker.run_share(name, table)
            return
        results = {name: maker.make(name, table) for name, table in chosen.items()}
        if arguments.json:
            print(json.dumps(flat(results)))
            return
        for name in chosen:
            print((arguments.out / f"{name}.md").read_text())


def _time(table: TableDefinition) -> str:
    """Say how long a table takes."""
    return (
        "time not known" if table.minutes is None else f"about {table.minutes:4.0f} min on 2 cores"
    )


def _parser(description: str, tables: Mapping[str, TableDefinition]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", action="append", choices=sorted(tables), help="make this table")
    parser.add_argument("--data", type=Path, help="folder with the data sets ($SOTTO_DATA)")
    parser.add_argument(
        "--runs",
        type=Path,
        default=Path("docs/results/runs"),
        help="folder of finished runs' lines",
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("runs/tables"),
        help="folder of runs under way; a finished run's may be deleted (default: runs/tables)",
    )
    parser.add_argument("--out", type=Path, default=Path("docs/results"), help="folder of tables")
    parser.add_argument("--workers", type=int, help="processes that train (default: one a core)")
    parser.add_argument(
        "--share",
        type=Share.read,
        default=Share(),
        metavar="I/N",
        help="run the I-th of every N runs and write no table: N commands side by side, with "
        "--workers 1 each (default: 1/1, all of them and the table)",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        help="rounds of every run, where the time allows no more; growth and falling steps keep "
        "the lengths of the table",
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to train")
    parser.add_argument(
        "--together",
        type=int,
        default=1,
        metavar="N",
        help="clients that one process trains at once, for images (default: 1)",
    )
    parser.add_argument("--list", action="store_true", help="show the tables and their time")
    parser.add_argument("--quick", action="store_true", help="under a minute, embedded data")
    parser.add_argument("--json", action="store_true", help="print one object of figures")
    return parser
