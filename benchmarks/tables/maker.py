"""Make results tables run by run, and go on where a stopped command ended.

Every run lies in a folder of its own below ``--runs`` and is not run again. After each run the
table is written anew to ``--out`` as JSON, Markdown and PNG. Short runs keep several processors
busy where commands with ``--workers 1`` and a ``--share`` each run side by side; the same command
without a share then writes the table.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from benchmarks.tables.definition import Row, TableDefinition
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
from simulation.workers.pool import processor_count

T = TypeVar("T")
Measure = Callable[[Path, Path | None, Figures], Figures]
"""Return more figures of a run: of its folder, with the data's, and of its own; those of a lost run
are none."""


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
            self._run(table, row, seed, self._folder_of(name, row, seed))

    def make(self, name: str, table: TableDefinition) -> dict[str, dict[str, float | None]]:
        """Run every row with every seed and return the figures by row."""
        floors = self._floors(table)
        rows = dict(floors)
        folders: dict[str, list[Path]] = {row.name: [] for row in table.rows}
        finals: dict[str, list[Figures]] = {row.name: [] for row in table.rows}
        command = f"python -m {self._module} --data DATA --only {name}{self._said}"
        for row, seed in seed_by_seed(table):
            folder = self._folder_of(name, row, seed)
            finals[row.name].append(self._run(table, row, seed, folder))
            folders[row.name].append(folder)
            done = {
                other: figures_of(runs, table.figures) for other, runs in finals.items() if runs
            }
            rows = {**floors, **done}
            over = {other: of_row for other, of_row in folders.items() if of_row}
            self._write(name, table, rows, self._out, command=command, runs=over)
        return rows

    def _folder_of(self, name: str, row: Row, seed: int) -> Path:
        return self._runs / (row.run or f"{name}/{_folder_name(row)}") / f"seed-{seed}"

    def _floors(self, table: TableDefinition) -> dict[str, dict[str, float | None]]:
        """Return what counting words comes to, where the table is about words."""
        if not table.counts_words:
            return {}
        population = self._population(configured(table)[0])
        return {
            floor: dict(figures) for floor, figures in baseline_figures(as_text(population)).items()
        }

    def _run(self, table: TableDefinition, row: Row, seed: int, folder: Path) -> Figures:
        config, tables = configured(table, *row.settings, *self._rounds, f"seed={seed}")
        population = self._population(config)
        if population.partition is not None:
            keep_partition(folder, population.partition)
        with ProgressReport(
            f"{row.name}, seed {seed}", first_round=1, last_round=config.rounds.cap
        ) as report:
            options = RunOptions(
                worker_count=self._workers,
                reporter=report,
                together=self._together,
                device=self._device,
            )
            try:
                final = run_simulation(config, tables, population, folder, options)
            except SimulationError as error:
                if not table.may_be_lost:
                    raise
                tell([f"{row.name}, seed {seed} is lost: {error}"])
                final = {}
        return self._measure(folder, self._data, final)

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


def _folder_name(row: Row) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in row.name)


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
    measure: Measure = lambda folder, data, final: final,
) -> None:
    """Make the tables that the command line asks for.

    Args:
        module: Name that the command is started by, for the record.
        description: First line of ``--help``.
        tables: Every table by name.
        quick: What ``--quick`` makes instead, in a temporary folder.
        write: Writes a table after each of its runs.
        measure: Adds to a run's figures.
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
            arguments.runs, arguments.out = Path(scratch, "runs"), Path(scratch, "results")
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
        "--runs", type=Path, default=Path("docs/results/runs"), help="folder of the runs"
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
