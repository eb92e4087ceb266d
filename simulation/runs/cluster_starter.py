"""Whole runs on a cluster: many at a time, each on one node, and all of each here when it ends.

A run's folder is here; its node works in a copy and sends what changes. A run whose node died goes
on elsewhere from what had arrived. One that fails is told at once, and its error is raised where
its result is asked for; the command then waits for the others, so that their work is not lost.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self
from weakref import ref

from server.config.shipped_starts import SHIPPED_STARTS
from simulation.engines.node_tasks import Ended, Lost, NodeTasks, Said
from simulation.figures.metrics import Figures, round_of
from simulation.figures.progress import Quiet, Reporter, RunStoppedError, Show, tell
from simulation.population.partition_record import keep_partition
from simulation.population.population import Population
from simulation.runs.checkpoint import FINAL_FILE
from simulation.runs.distant_run import Begun, Outcome, Parcel, Plugins, RoundTold, make_distant_run
from simulation.runs.travelling import Sender, alone, fold_store, put
from simulation.runs.whole_run import LocalStarter, Started, WholeRun
from simulation.workers.engine import WorkerError

_FRUITLESS = 3
"""Times that a run may be lost without a new round in between."""

OnCount = Callable[[int, int, str | None], None]
"""Hears how many runs are done, how many there are, and the name of one that just ended."""


class ClusterStarter:
    """A cluster of nodes that make runs; leave it with ``with``."""

    def __init__(
        self, tasks: NodeTasks, show: Show, *, on_count: OnCount = lambda _, __, ___: None
    ) -> None:
        self._tasks = tasks
        self._show = show
        self._on_count = on_count
        self._jobs: dict[Path, _Job] = {}
        self._under_way: dict[int, _Job] = {}
        self._populations: list[tuple[ref[Population], object]] = []
        self._starts: dict[str, object] = {}
        self._raised: list[Exception] = []

    def start(self, run: WholeRun) -> Started:
        """Start a run, or return the one of this folder that was started.

        What keeps it from starting is an error of its result, so that other runs go on.
        """
        if (run.folder / FINAL_FILE).exists():
            # Read, and not made again.
            return LocalStarter(_quietly).start(run)
        if run.folder not in self._jobs:
            job = self._jobs[run.folder] = _Job(run)
            try:
                population = run.population()
                if population.partition is not None:
                    keep_partition(run.folder, population.partition)
                job.population = self._shared(population)
                job.start = self._release(run.config.start_from)
                self._begin(job)
            except (ValueError, OSError) as error:
                self._end(job, error)
            self._count(None)
        return _Awaited(self, self._jobs[run.folder])

    def result_of(self, job: "_Job") -> Figures:
        """Wait for a run's final figures, and meanwhile see to all runs.

        Raises:
            WorkerError: If the run's node died again and again; otherwise as ``run_simulation``.
        """
        while job.outcome is None:
            self._hear()
        if isinstance(job.outcome, Exception):
            self._raised.append(job.outcome)
            raise job.outcome
        return job.outcome

    def drop(self, job: "_Job") -> None:
        """Interrupt a run whose result nobody asks for; what it sent stays."""
        if self._under_way.pop(job.key, None) is not None:
            self._tasks.cancel(job.key)
            job.end(RunStoppedError("nobody asks for it"))
            # A run of this folder that is asked for later is another.
            del self._jobs[job.run.folder]
            self._count(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if any(error is raised for raised in self._raised):
                while self._under_way:
                    self._hear()
        finally:
            for job in self._under_way.values():
                job.shown.close()
            self._tasks.cancel_all()

    def _begin(self, job: "_Job") -> None:
        run = job.run
        fold_store(run.folder)
        parcel = Parcel(
            Plugins(run.config.plugins),
            run.config,
            run.tables,
            run.options,
            str(run.folder),
            Sender(run.folder).changes(),
        )
        job.key = self._tasks.begin(make_distant_run, parcel, job.population, job.start)
        self._under_way[job.key] = job

    def _hear(self) -> None:
        for news in self._tasks.news():
            job = self._under_way.get(news.key)
            # A letter of a task that was lost or interrupted may come late.
            if job is None:
                continue
            match news:
                case Said():
                    self._note(job, news.message)
                case Ended():
                    del self._under_way[news.key]
                    self._finish(job, news.result)
                case Lost():
                    del self._under_way[news.key]
                    self._go_on(job, news.why)

    def _note(self, job: "_Job", message: Begun | RoundTold) -> None:
        if isinstance(message, Begun):
            run = job.run
            job.reporter = job.shown.enter_context(
                self._show(run.name, first_round=run.first_round, last_round=run.config.rounds.cap)
            )
            return
        if message.changes is not None:
            put(message.changes, job.run.folder)
        job.advance(round_of(message.figures))
        job.reporter.round_finished(message.figures)

    def _finish(self, job: "_Job", outcome: Outcome) -> None:
        if outcome.changes is not None:
            put(outcome.changes, job.run.folder)
        self._end(job, outcome.error or outcome.final or {})

    def _end(self, job: "_Job", outcome: Figures | Exception) -> None:
        job.end(outcome)
        self._count(job.run.name)
        is_failure = isinstance(outcome, Exception) and not isinstance(outcome, RunStoppedError)
        if is_failure and self._under_way:
            tell([f"{job.run.name} failed: {outcome}; the others go on"])

    def _count(self, ended: str | None) -> None:
        done = sum(job.outcome is not None for job in self._jobs.values())
        self._on_count(done, len(self._jobs), ended)

    def _go_on(self, job: "_Job", why: str) -> None:
        """Start a run again whose node died, unless that leads nowhere."""
        job.losses += 1
        job.shown.close()
        if job.losses < _FRUITLESS:
            tell([f"{job.run.name} is lost, and goes on from what had arrived: {why}"])
            self._begin(job)
        else:
            self._end(
                job,
                WorkerError(
                    f"{job.run.name} was lost {job.losses} times in a row: {why}; if memory ran "
                    "out, use fewer workers or larger nodes"
                ),
            )

    def _shared(self, population: Population) -> object:
        """Return what stands for a population on the cluster: runs that have one share it."""
        self._populations = [pair for pair in self._populations if pair[0]() is not None]
        for known, shared in self._populations:
            if known() is population:
                return shared
        shared = self._tasks.share(population)
        self._populations.append((ref(population), shared))
        return shared

    def _release(self, start_from: str | None) -> object:
        """Return what stands for the release that a run starts from."""
        # Every node has what ships with sotto.
        if start_from is None or start_from in SHIPPED_STARTS:
            return None
        if start_from not in self._starts:
            path = Path(start_from).resolve()
            content = alone(path) if path.is_file() else Sender(path).changes()
            self._starts[start_from] = self._tasks.share(content)
        return self._starts[start_from]


class _Job:
    """A run on the cluster, and how far it is.

    Attributes:
        population: What stands for it on the cluster; so ``start``.
        key: Its present task.
        newest: Its newest round, on whatever node.
        losses: How often it was lost since that round was new.
        outcome: Final figures or the error that ended it; None while it goes on.
    """

    def __init__(self, run: WholeRun) -> None:
        self.run = run
        self.population: object = None
        self.start: object = None
        self.key = 0
        self.newest = 0
        self.losses = 0
        self.shown = ExitStack()
        self.reporter: Reporter = Quiet()
        self.outcome: Figures | Exception | None = None

    def advance(self, round_number: int) -> None:
        """Note a round; one that was made before, on a node that died, is no advance."""
        if round_number > self.newest:
            self.newest, self.losses = round_number, 0

    def end(self, outcome: Figures | Exception) -> None:
        """Note how the run ended."""
        self.shown.close()
        self.outcome = outcome


class _Awaited(NamedTuple):
    starter: ClusterStarter
    job: _Job

    def result(self) -> Figures:
        return self.starter.result_of(self.job)

    def drop(self) -> None:
        self.starter.drop(self.job)


@contextmanager
def _quietly(name: str, *, first_round: int, last_round: int) -> Iterator[Reporter]:
    yield Quiet()
