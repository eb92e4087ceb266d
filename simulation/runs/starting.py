"""The place where a command's runs are made: this process, or the cluster that it asks for."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from simulation.engines.cluster import cluster_for
from simulation.engines.node_tasks import NodeTasks
from simulation.figures.progress import ManyProgress, ProgressReport, Show
from simulation.runs.cluster_starter import ClusterStarter
from simulation.runs.whole_run import LocalStarter, RunStarter
from simulation.workers.processors import processor_count


class Place(NamedTuple):
    """Where whole runs are made, as flags ask for it.

    Attributes:
        engine: ``local`` or ``ray``.
        address: The Ray cluster's; None for one of this machine alone.
        workers: Processes that train in each run; None for one a processor of this machine, and on
            a cluster for one, since runs keep its processors busy side by side.
        device: ``cpu`` or ``cuda``: a run on a cluster then gets a graphics processor of its own.
    """

    engine: str = "local"
    address: str | None = None
    workers: int | None = None
    device: str = "cpu"

    @property
    def worker_count(self) -> int:
        """Return the number of processes that train in each run."""
        return self.workers or (processor_count() if self.engine == "local" else 1)

    @contextmanager
    def starter(self, show: Show | None = None) -> Iterator[RunStarter]:
        """Yield what makes runs; ``show`` displays them in place of the usual bars and lines.

        Raises:
            EngineError: As ``simulation.engines.cluster.cluster_for``, or if no node has the
                processors that a run asks for.
        """
        processors = max(self.worker_count, processor_count())
        with cluster_for(self.engine, self.address, worker_count=processors) as cluster:
            if cluster is None:
                yield LocalStarter(show or ProgressReport)
                return
            gpus = 1 if self.device == "cuda" else 0
            tasks = NodeTasks(processors=self.worker_count, gpus=gpus)
            if show is not None:
                with ClusterStarter(tasks, show) as starter:
                    yield starter
                return
            with (
                ManyProgress("runs", tells_runs=True) as runs,
                ClusterStarter(tasks, runs.running, on_count=runs.runs_counted) as starter,
            ):
                yield starter
