"""Measure Ray as the engine of a run: what a client costs, what a lost node costs, and memory.

Figures (``--json`` prints them as one object):

    ray_overhead_ms  Milliseconds a client update costs on a cluster of this machine when nobody
                     trains: 1.6 M parameters, two workers, best round of ``repeats``.
    local_overhead_ms
                     The same on this machine's worker processes, in the same run; the
                     ``overhead_ms`` of ``benchmarks.simulation``.
    same_bits        1 if both engines' models have the same digest, else the benchmark fails.
    driver_rss_mb_100_clients, driver_rss_mb_1000_clients
                     Largest memory of the process that runs the rounds, MB, with a hundred and then
                     a thousand clients; the object store's pages that it reads count too.
    node_round_s     Seconds of an undisturbed round of 40 clients on two nodes of one processor.
    node_loss_s      Seconds that such a round lasts longer if one node is killed in the middle.

The object stores have 100 MiB a node.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import psutil
import torch

from benchmarks.parts.figures import benchmark_parser, show_figures
from benchmarks.simulation import SMALL_HIDDEN, SMALL_VOCABULARY, WORKERS, Untrained, make_config
from edge_client.descent.compute import prepare_compute
from edge_client.training.local_result import LocalResult
from models.networks.flat_parameters import parameters_sha256
from models.plan.plan import Plan
from server.config.plans import make_plan
from simulation.engines.choice import engine_on
from simulation.engines.cluster import ray_cluster
from simulation.rounds.federation import Federation
from simulation.workers.engine import Engine
from simulation.workers.jobs import TrainerFactory
from simulation.workers.local import LocalWorkers
from simulation.workers.pool import WorkerPool

CLIENTS, MANY_CLIENTS = 100, 1000
NODE_CLIENTS, LOSS_ROUND, CLIENT_S = 40, 3, 0.05
OBJECT_STORE_BYTES = 100 << 20


class Lost(Untrained):
    """Take a moment for a client; on one node, die with it in the middle of a round."""

    def __init__(self, plan: Plan, *, victim: str) -> None:
        super().__init__(plan)
        self._victim = victim
        self._trained = 0

    def train(self, *args: Any, round_number: int, **kwargs: Any) -> LocalResult:
        """Train nothing, or nobody any more."""
        self._trained += round_number == LOSS_ROUND
        if self._trained == NODE_CLIENTS // 4 and self._is_victim():
            os.kill(os.getppid(), signal.SIGKILL)
            os._exit(1)
        time.sleep(CLIENT_S)
        return super().train(*args, round_number=round_number, **kwargs)

    def _is_victim(self) -> bool:
        import ray

        return bool(ray.get_runtime_context().get_node_id() == self._victim)


class OwnMemory(threading.Thread):
    """A watch of this process's memory without its children: ``peak_bytes`` is the largest seen."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self._stopped = threading.Event()

    def run(self) -> None:
        """Look twenty times a second until stopped."""
        this = psutil.Process()
        while not self._stopped.wait(0.05):
            self.peak_bytes = max(self.peak_bytes, this.memory_info().rss)

    def stop(self) -> None:
        """End the watch."""
        self._stopped.set()
        self.join()


class Rounds:
    """Rounds of one federation: seconds of each, the last model, and memory."""

    def __init__(
        self, client_count: int, rounds: int, engine: Engine, trainer: TrainerFactory = Untrained
    ) -> None:
        """Run a round that warms the workers, and those that are measured."""
        config = make_config(
            client_count, vocabulary_size=SMALL_VOCABULARY, hidden_size=SMALL_HIDDEN
        )
        plan = make_plan(config, "00" * 16)
        text = {f"device-{number:04}": torch.arange(2, 22) for number in range(client_count)}
        watch = OwnMemory()
        self.seconds: list[float] = []
        with WorkerPool(plan, text, worker_count=WORKERS, trainer=trainer, engine=engine) as pool:
            federation = Federation(config, plan, list(text), pool)
            federation.run_round()
            watch.start()
            for _ in range(rounds):
                started = time.perf_counter()
                federation.run_round()
                self.seconds.append(time.perf_counter() - started)
            watch.stop()
        self.rss_bytes = watch.peak_bytes
        self.digest = parameters_sha256(federation.parameters)


def measure_overhead(repeats: int) -> dict[str, float]:
    """Return what a client costs on both engines, and the driver's memory; in a fresh process."""
    prepare_compute("cpu", threads=1)
    local = Rounds(CLIENTS, repeats, LocalWorkers)
    with ray_cluster(processors=WORKERS, object_store_bytes=OBJECT_STORE_BYTES) as cluster:
        few = Rounds(CLIENTS, repeats, engine_on(cluster))
        many = Rounds(MANY_CLIENTS, 1, engine_on(cluster))
    if few.digest != local.digest:
        raise SystemExit("both engines must end in the same bits, got different models")
    return {
        "ray_overhead_ms": min(few.seconds) / CLIENTS * 1e3,
        "local_overhead_ms": min(local.seconds) / CLIENTS * 1e3,
        "same_bits": 1,
        f"driver_rss_mb_{CLIENTS}_clients": few.rss_bytes / 1e6,
        f"driver_rss_mb_{MANY_CLIENTS}_clients": many.rss_bytes / 1e6,
    }


def measure_loss() -> dict[str, float]:
    """Return what the loss of a node costs a round; in a fresh process."""
    from benchmarks.parts.two_nodes import two_nodes

    prepare_compute("cpu", threads=1)
    with two_nodes() as nodes, ray_cluster(nodes.address) as cluster:
        rounds = LOSS_ROUND - 1
        trainer = partial(Lost, victim=nodes.second)
        seconds = Rounds(NODE_CLIENTS, rounds, engine_on(cluster), trainer).seconds
    *undisturbed, lost = seconds
    return {
        "node_round_s": min(undisturbed),
        "node_loss_s": lost - min(undisturbed),
    }


def _in_fresh_process(measure: Any, *arguments: Any) -> dict[str, float]:
    # Ray reads its settings once a process.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as fresh:
        figures: dict[str, float] = fresh.submit(measure, *arguments).result()
    return figures


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="three rounds of a hundred clients, not ten")
    arguments = parser.parse_args(argv)
    figures = _in_fresh_process(measure_overhead, 3 if arguments.quick else 10)
    figures |= _in_fresh_process(measure_loss)
    show_figures(figures, "Ray", as_json=arguments.json)


if __name__ == "__main__":
    main()
