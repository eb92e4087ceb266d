"""Whole runs as pieces of work: many are started, somewhere, and asked for in the caller's order.

Sweeps, searches and tables start all the runs that they know of and then read one result after the
other. On this machine a run begins when its result is asked for, as it always did; a cluster begins
as many as it has room for. Results are the same, since a run depends on its settings, its seed and
its population alone.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from simulation.config.simulation import SimulationConfig
from simulation.figures.metrics import Figures, read_metrics, round_of
from simulation.figures.progress import Both, Show
from simulation.population.partition_record import keep_partition
from simulation.population.population import Population
from simulation.runs.runner import RunOptions, run_simulation


class WholeRun(NamedTuple):
    """One run, from its settings to its final figures.

    Attributes:
        name: What the run is called while it is under way.
        population: Loads the population, or returns the loaded one; asked as late as can be.
        folder: The run's folder on this machine; what lies there is resumed.
        options: As ``run_simulation`` takes them. The reporter goes where the run goes, and may end
            it (``RunStoppedError``).
    """

    name: str
    config: SimulationConfig
    tables: Mapping[str, Any]  # TOML values.
    population: Callable[[], Population]
    folder: Path
    options: RunOptions

    @property
    def first_round(self) -> int:
        """Return the round after the newest with figures."""
        return max((round_of(row) for row in read_metrics(self.folder)), default=0) + 1


class Started(Protocol):
    """A run that was started."""

    def result(self) -> Figures:
        """Wait for the final figures; errors are those of ``run_simulation``."""
        ...

    def drop(self) -> None:
        """Say that nobody will ask for the result."""
        ...


class RunStarter(Protocol):
    """A place where runs are made."""

    def start(self, run: WholeRun) -> Started:
        """Start a run; two of one folder are one."""
        ...


class LocalStarter:
    """This process: a run begins when its result is asked for."""

    def __init__(self, show: Show) -> None:
        self._show = show

    def start(self, run: WholeRun) -> Started:
        """Put the run off until somebody asks."""
        return _PutOff(run, self._show)


class _PutOff(NamedTuple):
    run: WholeRun
    show: Show

    def result(self) -> Figures:
        return run_here(self.run, self.show)

    def drop(self) -> None:
        """Do nothing: nothing has begun."""


def run_here(run: WholeRun, show: Show) -> Figures:
    """Make a run in this process, errors as ``run_simulation``."""
    population = run.population()
    if population.partition is not None:
        keep_partition(run.folder, population.partition)
    last_round = run.config.rounds.cap
    with show(run.name, first_round=run.first_round, last_round=last_round) as shown:
        options = run.options._replace(reporter=Both(shown, run.options.reporter))
        return run_simulation(run.config, run.tables, population, run.folder, options)
