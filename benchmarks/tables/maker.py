"""Make results tables run by run, and go on where a stopped command ended.

A finished run is a line of ``TABLE.jsonl`` below ``--runs`` and is not made again; one under way
lies in a folder below ``--work`` and goes on. After each run the table is written anew to ``--out``
as JSON, Markdown and PNG. Short runs keep several processors busy where commands with
``--workers 1`` and a ``--share`` each run side by side; the same command without a share then
writes the table. ``--engine ray`` starts all runs at once, on as many nodes as there are.
"""

import argparse
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.tables.arguments import Share, parser_of
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
from simulation.figures.progress import tell
from simulation.population.dealing import build_population
from simulation.population.population import Population, as_text
from simulation.rounds.attendance import SimulationError
from simulation.runs.runner import RunOptions
from simulation.runs.starting import Place
from simulation.runs.whole_run import Started, WholeRun

Measure = Callable[[TableDefinition, Path, Path | None, Figures], Outcome]
"""Measure a run by its table, its folder, the folder of data and its final figures, if any."""


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
        self._place = Place(
            arguments.engine, arguments.address, arguments.workers, arguments.device
        )
        self._together: int = arguments.together
        self._share: Share = arguments.share
        self._rounds: tuple[str, ...] = (
            () if arguments.rounds is None else (f"rounds.cap={arguments.rounds}",)
        )
        self._module = module
        self._said = "" if arguments.rounds is None else f" --rounds {arguments.rounds}"
        self._populations: dict[object, Population] = {}
        self._started: dict[Path, Started] = {}

    @contextmanager
    def under_way(self, tables: Mapping[str, TableDefinition]) -> Iterator[None]:
        """Start this command's part of the runs that are missing; they end with the block."""
        with self._place.starter() as starter:
            for name, table in tables.items():
                for row, seed in self._share.taken(seed_by_seed(table)):
                    run = self._missing(name, table, row, seed)
                    if run is not None:
                        self._started[run.folder] = starter.start(run)
            yield

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
        """Return the record of a run, which is awaited first if it is missing."""
        config, tables = self._configured(table, row, seed)
        records, of_row = self._records(name, row)
        found = find_record(records, of_row, seed, tables)
        if found is not None:
            return found
        folder = self._folder(name, row, tables)
        try:
            final = self._started[folder].result()
        except SimulationError as error:
            if not table.may_be_lost:
                raise
            tell([f"{row.name}, seed {config.seed} is lost: {error}"])
            final = {}
        outcome = self._measure(table, folder, self._data, final)
        record = RunRecord(
            row=of_row, seed=seed, configuration=tables, **msgspec.structs.asdict(outcome)
        )
        append_record(records, record)
        return record

    def _missing(self, name: str, table: TableDefinition, row: Row, seed: int) -> WholeRun | None:
        """Return a run that is not recorded."""
        config, tables = self._configured(table, row, seed)
        records, of_row = self._records(name, row)
        if find_record(records, of_row, seed, tables) is not None:
            return None
        if config.vocabulary is not None:
            check_one_kind(records)
        return WholeRun(
            f"{row.name}, seed {seed}",
            config,
            tables,
            partial(self._population, config),
            self._folder(name, row, tables),
            RunOptions(
                worker_count=self._place.worker_count,
                kept_every=table.kept_every,
                together=self._together,
                device=self._place.device,
            ),
        )

    def _configured(
        self, table: TableDefinition, row: Row, seed: int
    ) -> tuple[SimulationConfig, dict[str, Any]]:  # TOML values.
        settings = (*row.settings, *self._rounds, f"seed={seed}")
        return configured(table, *settings, preset=row.preset)

    def _records(self, name: str, row: Row) -> tuple[Path, str]:
        """Return the file of a row's runs, and the row's name in it."""
        of_table, of_row = row.run or (name, row.name)
        return self._runs / f"{of_table}.jsonl", of_row

    def _folder(self, name: str, row: Row, tables: Mapping[str, Any]) -> Path:  # TOML values.
        of_table, of_row = row.run or (name, row.name)
        return self._work / of_table / _folder_name(of_row, tables)

    def _population(self, config: SimulationConfig) -> Population:
        key = (config.data, config.vocabulary)
        if key not in self._populations:
            self._populations[key] = build_population(config, self._data)
        return self._populations[key]


# The dictionary holds TOML tables: values of any TOML type.
def configured(
    table: TableDefinition, *settings: str, preset: str | None = None
) -> tuple[SimulationConfig, dict[str, Any]]:
    """Return the table's preset, or another, with the table's and some more settings changed.

    Raises:
        SettingsError: If a setting does not exist or cannot be.
    """
    overrides = [parse_override(text) for text in (*table.settings, *settings)]
    preset = table.preset if preset is None else preset
    tables = with_settings(read_tables(preset), overrides)
    return config_from(tables, preset), tables


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
    arguments = parser_of(description, tables).parse_args()
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
        with maker.under_way(chosen):
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
