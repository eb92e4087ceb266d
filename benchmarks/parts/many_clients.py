"""Run federations of few and of ten times as many clients, each with a model of its own on disk.

The method is Ditto with kept momentum: after every round each client has a whole model and a state
of its optimiser that only it needs. All clients take part in both rounds. Each run is
``sotto-simulate run``'s own code in a fresh process, whose memory is watched with that of its
workers.
"""

import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks.parts.memory_watch import watch_of_all
from edge_client.datasets.registry import load_images
from models.tasks.image_classification import LabelledImages
from simulation.config.overrides import parse_override
from simulation.config.simulation import config_from, read_tables, with_settings
from simulation.population.population import Population, client_name
from simulation.runs.runner import RunOptions, run_simulation

IMAGES, ROUNDS = 20, 2
FACTOR = 10
_MEGABYTE = 1e6


class Run(NamedTuple):
    """Hold what one run took.

    Attributes:
        peak_bytes: Largest memory of all its processes together.
        kept_bytes: Bytes that its clients keep on disk at its end.
        seconds: From the start of its workers to its final figures.
    """

    peak_bytes: int
    kept_bytes: int
    seconds: float


def measure_many_clients(fewest: int, worker_count: int) -> dict[str, float]:
    """Return the memory of a run with the fewest clients and of one with ten times as many."""
    most = FACTOR * fewest
    few, many = (_in_fresh_process(count, worker_count) for count in (fewest, most))
    return {
        f"rss_mb_{fewest}_clients": few.peak_bytes / _MEGABYTE,
        f"rss_mb_{most}_clients": many.peak_bytes / _MEGABYTE,
        f"kept_mb_{most}_clients": many.kept_bytes / _MEGABYTE,
        f"run_s_{most}_clients": many.seconds,
        f"clients_per_s_{most}_clients": ROUNDS * most / many.seconds,
    }


def run_clients(client_count: int, worker_count: int) -> Run:
    """Run a federation; for a process of its own."""
    tables = with_settings(
        read_tables("fedtp-digits"),
        [
            parse_override(text)
            for text in (
                "personalisation={method='ditto'}",
                f"data.client_count={client_count}",
                f"rounds.cap={ROUNDS}",
                "rounds.participation_rate=1.0",
                "training.local_epochs=1",
                "training.optimiser_state=kept",
            )
        ],
    )
    population = Population(clients=_clients(client_count), held_out={})
    watch = watch_of_all()
    watch.start()
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        run_simulation(
            config_from(tables, "benchmark"),
            tables,
            population,
            Path(folder) / "run",
            RunOptions(worker_count=worker_count),
        )
        seconds = time.perf_counter() - started
        kept = sum(path.stat().st_size for path in Path(folder).glob("run/*/device-*/*"))
    watch.stop()
    return Run(watch.peak_bytes, kept, seconds)


def _clients(client_count: int) -> dict[str, LabelledImages]:
    """Return clients of twenty digits each; a digit is many clients'."""
    digits = load_images("digits", None).train
    generator = torch.Generator().manual_seed(1)
    return {
        client_name(number): digits[torch.randperm(len(digits), generator=generator)[:IMAGES]]
        for number in range(1, client_count + 1)
    }


def _in_fresh_process(client_count: int, worker_count: int) -> Run:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as fresh_process:
        return fresh_process.submit(run_clients, client_count, worker_count).result()
