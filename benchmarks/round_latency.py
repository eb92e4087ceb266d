"""Measure a deployed round in which nobody trains: what the federation itself takes.

Figures (``--json`` prints them as one object):

    round_ms             Median time from one release to the next: coordinator and 2 devices in
                         processes of their own, 8 MiB of parameters, mutual TLS, sealed and signed
                         both ways, updates and releases flushed to the disk, attentive aggregation.
    scraped_ratio        Median of such rounds while the coordinator's figures are asked for every
                         second, over the median without; the two in turns of some rounds each.
    cpu_s_per_10_rounds  Processor seconds of all three processes for ten such rounds.
    round10_s            Median round of 10 devices and 10 million parameters, seconds.
    round_with_child_ms  Median round of 2 devices whose agents start a process with torch each
                         round and train on a few sentences.
    bare_ms, bare10_s    The same bytes between as many processes with bare gRPC-TLS and nothing
                         else: ``comparators/bare_exchange.py``.

Rounds are timed by the coordinator's own records, over and over in one run; the first are left out.
"""

import itertools
import statistics
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path

from benchmarks.comparators.bare_exchange import exchange_seconds
from benchmarks.parts.deployment import Deployment, free_ports
from benchmarks.parts.figures import benchmark_parser, show_figures

WARM_UP_ROUNDS = 2
TURN_ROUNDS = 10
TIMEOUT_S = 300.0
# Words and width of a tied GRU: 2,097,138 and 10,009,472 parameters.
MODEL_8_MIB = {"words": 9_714, "hidden": 192}
MODEL_10_M = {"words": 10_000, "hidden": 703}
LARGE_BYTES = 4 * 10_009_472


class WatchedDeployment(Deployment):
    """A federation whose coordinator shows its figures.

    Attributes:
        metrics_port: Where.
    """

    def __init__(self, folder: Path, **sizes: int) -> None:
        (self.metrics_port,) = free_ports(1)
        super().__init__(folder, **sizes)

    def __enter__(self) -> "WatchedDeployment":
        return self

    def changed(self, settings: str) -> str:
        """Return the settings, whose last table is the one of addresses, with one more."""
        return f'{settings}metrics = "127.0.0.1:{self.metrics_port}"\n'


def round_seconds(deployment: Deployment, first: int) -> list[float]:
    """Return the time from each release to the next, from round ``first`` on."""
    moments = [row.recorded_at for row in deployment.released() if row.round_number >= first]
    return [after - before for before, after in itertools.pairwise(moments)]


@contextmanager
def idle_federation(model: dict[str, int], cohort: int) -> Iterator[WatchedDeployment]:
    """Run a federation without training, which has done its first rounds."""
    with (
        tempfile.TemporaryDirectory(prefix="sotto-rounds-") as folder,
        WatchedDeployment(Path(folder), cohort=cohort, **model) as deployment,
    ):
        deployment.start_coordinator()
        deployment.enrol()
        for number in range(cohort):
            deployment.start_idle_device(number)
        deployment.await_rounds(WARM_UP_ROUNDS, TIMEOUT_S)
        yield deployment


@contextmanager
def scraped(port: int) -> Iterator[None]:
    """Ask a coordinator for its figures every second, as Prometheus would at its most eager."""
    enough = threading.Event()

    def ask() -> None:
        while not enough.is_set():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
                page.read()
            enough.wait(1.0)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            yield
        finally:
            enough.set()
            asking.result()


def scraped_ratio(deployment: WatchedDeployment, turns: int) -> float:
    """Return how much longer a median round is with figures asked for than without."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(2 * turns):
        # Which comes first changes, so that a machine that slows down favours neither.
        is_scraped = turn % 4 in (1, 2)
        with scraped(deployment.metrics_port) if is_scraped else nullcontext():
            first = deployment.rounds_logged() + 1
            deployment.await_rounds(first + TURN_ROUNDS, TIMEOUT_S)
            seconds[is_scraped] += round_seconds(deployment, first)[:TURN_ROUNDS]
    return statistics.median(seconds[True]) / statistics.median(seconds[False])


def small_rounds(rounds: int, turns: int, child_rounds: int) -> dict[str, float]:
    """Time rounds of 2 devices and 8 MiB: without training, then with."""
    with idle_federation(MODEL_8_MIB, 2) as deployment:
        cpu_s, first = deployment.cpu_s(), deployment.rounds_logged()
        deployment.await_rounds(first + rounds, TIMEOUT_S)
        cpu_s, last = deployment.cpu_s() - cpu_s, deployment.rounds_logged()
        seconds = round_seconds(deployment, first)
        ratio = scraped_ratio(deployment, turns)
        deployment.stop_devices()
        for number in range(2):
            deployment.start_training_device(number)
        # The round that was open when the devices changed, and the first that starts a child.
        first_trained = deployment.rounds_logged() + 2
        deployment.await_rounds(first_trained + child_rounds, TIMEOUT_S)
        return {
            "round_ms": statistics.median(seconds) * 1e3,
            "round_ms_p90": statistics.quantiles(seconds, n=10)[-1] * 1e3,
            "scraped_ratio": ratio,
            "cpu_s_per_10_rounds": cpu_s / (last - first) * 10,
            "round_with_child_ms": statistics.median(round_seconds(deployment, first_trained))
            * 1e3,
            "rounds": len(seconds),
        }


def large_round_s(rounds: int) -> float:
    """Return the median of rounds of 10 devices and 10 million parameters."""
    with idle_federation(MODEL_10_M, 10) as deployment:
        first = deployment.rounds_logged()
        deployment.await_rounds(first + rounds, TIMEOUT_S)
        return statistics.median(round_seconds(deployment, first))


def measure(rounds: int, turns: int, large_rounds: int, child_rounds: int) -> dict[str, float]:
    """Run all federations and return the figures."""
    return {
        **small_rounds(rounds, turns, child_rounds),
        "round10_s": large_round_s(large_rounds),
        "bare_ms": statistics.median(exchange_seconds(8 << 20, 2, rounds)) * 1e3,
        "bare10_s": statistics.median(exchange_seconds(LARGE_BYTES, 10, large_rounds)),
    }


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="fewer rounds")
    arguments = parser.parse_args()
    figures = measure(15, 4, 2, 1) if arguments.quick else measure(60, 12, 10, 5)
    show_figures(figures, "A deployed round without training", as_json=arguments.json)


if __name__ == "__main__":
    main()
