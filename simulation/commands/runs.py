"""The work of the subcommands once their arguments are read."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from server.config.federation import ConfigError
from server.config.start_lines import outlook
from simulation.config.overrides import Override
from simulation.config.simulation import (
    SimulationConfig,
    config_from,
    extended,
    read_tables,
    with_settings,
)
from simulation.engines.choice import engine_on, worker_count_on
from simulation.engines.cluster import Cluster, cluster_for
from simulation.figures.followed import nothing_to_follow
from simulation.figures.metrics import Figures, Value, read_metrics
from simulation.figures.plots import plot_runs
from simulation.figures.progress import ProgressReport, tell
from simulation.figures.threshold import Threshold
from simulation.population.dealing import build_population
from simulation.population.population import Population
from simulation.runs.methods import method_table
from simulation.runs.runner import RunOptions
from simulation.runs.starting import Place
from simulation.runs.sweep import Cell, Row, cells, run_sweep
from simulation.runs.whole_run import WholeRun, run_here
from simulation.workers.engine import Engine
from simulation.workers.local import LocalWorkers

_JUDGED_BY = {
    "image_classification": "accuracy",
    "next_character": "accuracy",
    "speech": "mel_l1",
    "vocoder": "spectral_distance",
}


class Request(NamedTuple):
    """The request of ``run`` and ``sweep``.

    Attributes:
        name: Preset, or file ending in ``.toml``; with ``given`` what the settings are called.
        worker_count: Processes that train; None for one a processor core.
        until: When to stop early.
        method: Personalisation method in place of the file's, or None.
        together: Clients that one process trains at once.
        engine: ``local`` or ``ray``.
        address: The Ray cluster's; None for one of this machine alone.
        given: TOML tables in place of a preset's or a file's.
    """

    name: str
    data: Path | None
    settings: Sequence[Override]
    worker_count: int | None
    until: Threshold | None
    method: str | None = None
    with_tensorboard: bool = False
    together: int = 1
    device: str = "cpu"
    engine: str = "local"
    address: str | None = None
    given: Mapping[str, Any] | None = None  # TOML values.

    @property
    def short_name(self) -> str:
        """Return the name without folder and ending, and the method where it is given."""
        name = Path(self.name).name.removesuffix(".toml")
        return name if self.method is None else f"{name}-{self.method}"

    def tables(self) -> dict[str, Any]:  # TOML values.
        """Return the TOML tables of the preset or file, with the method that is asked for.

        Raises:
            ConfigError: If there is no such preset or file, or it is no TOML.
            ValueError: If there is no such method.
        """
        given = self.given
        tables = read_tables(self.name) if given is None else extended(given, self.name)
        if self.method is not None:
            tables["personalisation"] = method_table(self.method, tables)
        return tables

    def cluster(self) -> AbstractContextManager[Cluster | None]:
        """Return the cluster to work on, to be entered; None of it where this machine does.

        Entering raises EngineError as ``simulation.engines.cluster.cluster_for``.
        """
        return cluster_for(self.engine, self.address, worker_count=self.worker_count)

    def place(self) -> Place:
        """Return where whole runs are made, a command's of which there are many."""
        return Place(self.engine, self.address, self.worker_count, self.device)

    def options(self, *, worker_count: int, engine: Engine = LocalWorkers) -> RunOptions:
        """Return the options of each run."""
        return RunOptions(
            worker_count=worker_count,
            with_tensorboard=self.with_tensorboard,
            until=self.until,
            together=self.together,
            device=self.device,
            engine=engine,
        )

    def judged_by(self) -> str:
        """Return the final figure that runs of this task are compared by, errors as ``tables``."""
        return _JUDGED_BY.get(self.tables().get("task", ""), "test_perplexity")


def run_one(request: Request, *, out: Path | None) -> Figures:
    """Run one federation; return its final figures and folder, and the seconds of all starts."""
    tables = with_settings(request.tables(), request.settings)
    config = config_from(tables, request.name)
    _check_cohort(config)
    folder = out or Path("runs") / f"{request.short_name}-seed-{config.seed}"
    population = build_population(config, request.data)
    tell(population.notes)
    why = nothing_to_follow(config, population)
    if why and config.evaluation.keep_best:
        tell([f"the last round's model is kept, not the best on the validation split: {why}"])
    tell(f"privacy: {line}" for line in outlook(config))
    if config.growth_told:
        tell([f"growth: {config.growth_told}"])
    with request.cluster() as cluster:
        count = worker_count_on(cluster, request.worker_count)
        engine = engine_on(cluster, worker_count=count)
        options = request.options(worker_count=count, engine=engine)
        run = WholeRun(folder.name, config, tables, lambda: population, folder, options)
        final = run_here(run, ProgressReport)
    return told_of(folder, final)


def told_of(folder: Path, final: Figures) -> dict[str, Value]:
    """Return what a command tells of a run that is over: also its folder and its seconds."""
    return {**final, "seconds": _seconds(folder), "out": str(folder)}


def sweep(request: Request, *, seeds: Sequence[int], out: Path | None, figure: str) -> list[Row]:
    """Run every combination of the settings' values with every seed, and return the table."""
    tables = request.tables()
    grid = cells(tables, request.settings)
    populations = _PopulationCache(request.data)
    for cell in grid:
        # A typo in the last cell is found now, not tonight.
        _checked(cell)

    place = request.place()
    is_here = place.engine == "local"
    engine = engine_on(None, worker_count=place.worker_count) if is_here else LocalWorkers
    folder = out or Path("runs") / f"{request.short_name}-sweep"
    with place.starter() as starter:

        def start_cell(cell: Cell, seed: int, folder: Path) -> Callable[[], Figures]:
            seeded = {**cell.tables, "seed": seed}
            config = config_from(seeded, cell.name)
            options = request.options(worker_count=place.worker_count, engine=engine)
            name, population = f"{cell.name}, seed {seed}", partial(populations.of, config)
            return starter.start(WholeRun(name, config, seeded, population, folder, options)).result

        return run_sweep(
            grid,
            seeds,
            folder,
            figure=figure,
            threshold=request.until,
            start_cell=start_cell,
        )


def _checked(cell: Cell) -> None:
    config = config_from(cell.tables, cell.name)
    try:
        _check_cohort(config)
    except ValueError as error:
        raise ConfigError(f"{cell.name}: {error}") from None


def _check_cohort(config: SimulationConfig) -> None:
    """Check, before data is loaded, that the quorum is not larger than the cohort."""
    data, rounds = config.data, config.rounds
    most = data.client_count if data.ratio is None else len(data.ratio)
    why = None if most is None else rounds.shortage(most)
    if why is not None:
        raise ValueError(why)


def plot(folders: Sequence[Path], path: Path, *, figure: str) -> None:
    """Draw a figure of some runs by round.

    Raises:
        ValueError: If a folder holds no metrics, or none has the figure.
    """
    runs = {str(folder): read_metrics(folder) for folder in folders}
    empty = [name for name, rows in runs.items() if not rows]
    if empty:
        raise ValueError(f"{', '.join(empty)} holds no metrics; give the folder of a run")
    plot_runs(runs, path, figure=figure)


def _seconds(folder: Path) -> float:
    names = ("round_s", "evaluation_s")
    return sum(float(row.get(name) or 0) for row in read_metrics(folder) for name in names)


class _PopulationCache:
    """A cache that loads a data set again only when the settings that shape it change."""

    def __init__(self, data: Path | None) -> None:
        self._data = data
        self._key: object = None
        self._population: Population | None = None

    def of(self, config: SimulationConfig) -> Population:
        key = (config.task, config.data, config.vocabulary, config.model, config.evaluation.kind)
        if self._population is None or key != self._key:
            self._population, self._key = build_population(config, self._data), key
        return self._population
