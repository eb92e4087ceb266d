"""Measure a deployed round in which nobody trains: what the federation itself takes.

Figures (``--json`` prints them as one object):

    round_ms             Median time from one release to the next: coordinator and 2 devices in
                         processes of their own, 8 MiB of parameters, mutual TLS, sealed and signed
                         both ways, updates and releases flushed to the disk, attentive aggregation.
    cpu_s_per_10_rounds  Processor seconds of all three processes for ten such rounds.
    round10_s            Median round of 10 devices and 10 million parameters, seconds.
    round_with_child_ms  Median round of 2 devices whose agents start a process with torch each
                         round and train on a few sentences.
    bare_ms, bare10_s    The same bytes between as many processes with bare gRPC-TLS and nothing
                         else: ``comparators/bare_exchange.py``.

Rounds are timed by the coordinator's own records, over and over in one run; the first are left out.
"""

import argparse
import itertools
import json
import statistics
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.comparators.bare_exchange import exchange_seconds
from benchmarks.parts.deployment import Deployment

WARM_UP_ROUNDS = 3
TIMEOUT_S = 300.0
# Words and width of a tied GRU: 2,097,138 and 10,009,472 parameters.
MODEL_8_MIB = {"words": 9_714, "hidden": 192}
MODEL_10_M = {"words": 10_000, "hidden": 703}
LARGE_BYTES = 4 * 10_009_472
TEXT = "the train is late again\ni will be home at eight\ncan you buy bread and milk\n"


def round_seconds(deployment: Deployment) -> list[float]:
    """Return the time from each release to the next, the first few left out."""
    moments = [row.recorded_at for row in deployment.released()][WARM_UP_ROUNDS - 1 :]
    return [after - before for before, after in itertools.pairwise(moments)]


def idle_rounds(model: dict[str, int], cohort: int, rounds: int) -> tuple[list[float], float]:
    """Run rounds without training; return their seconds, and the CPU seconds of one."""
    with (
        tempfile.TemporaryDirectory(prefix="sotto-rounds-") as folder,
        Deployment(Path(folder), cohort=cohort, **model) as deployment,
    ):
        deployment.start_coordinator()
        deployment.enrol()
        for number in range(cohort):
            deployment.start_idle_device(number)
        deployment.await_rounds(WARM_UP_ROUNDS, TIMEOUT_S)
        cpu_s, first = deployment.cpu_s(), deployment.rounds_logged()
        deployment.await_rounds(WARM_UP_ROUNDS + rounds, TIMEOUT_S)
        cpu_s, last = deployment.cpu_s() - cpu_s, deployment.rounds_logged()
        return round_seconds(deployment), cpu_s / (last - first)


def training_rounds(rounds: int) -> list[float]:
    """Run rounds with a child process each; return their seconds."""
    with (
        tempfile.TemporaryDirectory(prefix="sotto-rounds-") as folder,
        Deployment(Path(folder), cohort=2, **MODEL_8_MIB) as deployment,
    ):
        deployment.start_coordinator()
        deployment.enrol()
        for number in range(2):
            device = deployment.device_folder(number)
            device.client_settings.write_text("keep_warm_s = 0.0\n[policy]\nidle = false\n")
            text = Path(folder) / f"text-{number}"
            text.mkdir()
            (text / "messages.txt").write_text(TEXT)
            arguments = ("run", str(device.path), "--data", str(text), "--device", "cpu")
            deployment.start_device(number, "edge_client.cli", *arguments)
        deployment.await_rounds(WARM_UP_ROUNDS + rounds, TIMEOUT_S)
        return round_seconds(deployment)


def measure(rounds: int, large_rounds: int, child_rounds: int) -> dict[str, float]:
    """Run all federations and return the figures."""
    seconds, cpu_s = idle_rounds(MODEL_8_MIB, 2, rounds)
    large, _ = idle_rounds(MODEL_10_M, 10, large_rounds)
    bare = exchange_seconds(8 << 20, 2, rounds)
    bare_large = exchange_seconds(LARGE_BYTES, 10, large_rounds)
    return {
        "round_ms": statistics.median(seconds) * 1e3,
        "round_ms_p90": statistics.quantiles(seconds, n=10)[-1] * 1e3,
        "cpu_s_per_10_rounds": cpu_s * 10,
        "round10_s": statistics.median(large),
        "round_with_child_ms": statistics.median(training_rounds(child_rounds)) * 1e3,
        "bare_ms": statistics.median(bare) * 1e3,
        "bare10_s": statistics.median(bare_large),
        "rounds": len(seconds),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", action="store_true", help="print one object of figures")
    arguments = parser.parse_args()
    figures = measure(15, 3, 1) if arguments.quick else measure(60, 10, 5)
    if arguments.json:
        print(json.dumps(figures))
        return
    table = Table("figure", "value", title="A deployed round without training")
    for name, value in figures.items():
        table.add_row(name, f"{value:,.3f}" if isinstance(value, float) else f"{value:,}")
    Console().print(table)


if __name__ == "__main__":
    main()
