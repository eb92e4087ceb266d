"""Measure Ray as the engine of a run: what a client costs, what a lost node costs, and memory.

Figures (``--json`` prints them as one object):

    ray_overhead_ms  Milliseconds a client update costs on a cluster of this machine when nobody
                     trains: 1.6 M parameters, two workers, best round of ``repeats``.
    local_overhead_ms
                     The same on this machine's worker processes, in the same run; the
                     ``overhead_ms`` of ``benchmarks.simulation``.
    ray_processor_ms, local_processor_ms
                     Both by processor time of all processes, mean round.
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
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from benchmarks.parts.figures import benchmark_parser, show_figures
from benchmarks.parts.idle_rounds import LOSS_ROUND, NODE_CLIENTS, Lost, Rounds
from benchmarks.simulation import WORKERS
from edge_client.descent.compute import prepare_compute
from simulation.engines.choice import engine_on
from simulation.engines.cluster import ray_cluster
from simulation.workers.local import LocalWorkers

CLIENTS, MANY_CLIENTS = 100, 1000
OBJECT_STORE_BYTES = 100 << 20


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
        "ray_processor_ms": few.processor_s / CLIENTS * 1e3,
        "local_processor_ms": local.processor_s / CLIENTS * 1e3,
        "same_bits": 1,
        f"driver_rss_mb_{CLIENTS}_clients": few.rss_bytes / 1e6,
        f"driver_rss_mb_{MANY_CLIENTS}_clients": many.rss_bytes / 1e6,
    }


def measure_loss(_: int) -> dict[str, float]:
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


MEASUREMENTS: dict[str, Callable[[int], dict[str, float]]] = {
    "overhead": measure_overhead,
    "loss": measure_loss,
}


def _speak_on_stderr() -> None:
    """Let what Ray prints of a killed node, also in its own processes, stay out of the figures."""
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="three rounds of a hundred clients, not ten")
    parser.add_argument("--only", choices=MEASUREMENTS, help="one measurement instead of both")
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    for name, measure in MEASUREMENTS.items():
        if arguments.only in (None, name):
            # Ray reads its settings once a process.
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, context, _speak_on_stderr) as fresh:
                figures |= fresh.submit(measure, 3 if arguments.quick else 10).result()
    show_figures(figures, "Ray", as_json=arguments.json)


if __name__ == "__main__":
    main()
