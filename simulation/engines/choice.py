"""The engine that a run works on: this machine's processes, or a cluster."""

from functools import partial

from simulation.engines.cluster import Cluster
from simulation.workers.engine import Engine
from simulation.workers.local import LocalWorkers
from simulation.workers.own_process import OwnProcess
from simulation.workers.processors import processor_count


def engine_on(cluster: Cluster | None, *, worker_count: int | None = None) -> Engine:
    """Return the engine that works on a cluster; on this machine without one.

    One worker needs no process of its own there.
    """
    if cluster is None:
        return OwnProcess if worker_count == 1 else LocalWorkers
    # It imports Ray.
    from simulation.engines.ray_workers import RayWorkers

    return partial(RayWorkers, cluster=cluster)


def worker_count_on(cluster: Cluster | None, asked: int | None) -> int:
    """Return how many workers a run has: as many as are asked for, or one a processor."""
    return asked or (processor_count() if cluster is None else cluster.processor_count)
