"""Time rounds of small image classifiers: beside a bare loop, and many clients at once.

The network, the clients and the training are those of the preset ``fedtp-digits`` under FedAvg:
20 clients of about 70 digits, five epochs, everybody in every round. Processor seconds are those of
all processes: what else runs on the machine is not in them.
"""

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from typing import NamedTuple

import psutil
import torch
from torch import Tensor

from benchmarks.comparators.bare_client_loop import BareClient, BareLoop, BareRound
from models.networks.flat_parameters import initial_parameters
from models.networks.registry import build_network
from models.plan.plan import Plan
from models.settings.image import VitSettings
from models.settings.model import schema_of
from models.tasks.image_classification import LabelledImages
from models.vector.seeds import client_seed
from server.config.plans import make_plan
from simulation.config.overrides import parse_override
from simulation.config.simulation import SimulationConfig, config_from, read_tables, with_settings
from simulation.population.dealing import build_population
from simulation.rounds.federation import Federation
from simulation.workers.local import LocalWorkers
from simulation.workers.pool import WorkerPool

LARGEST_LOSS_DIFFERENCE = 0.01
CPU_GROUP, GPU_GROUP = 20, 100
"""Clients trained at once: more keep a GPU busy, and leave a processor's cache."""


class Cost(NamedTuple):
    """Hold what a round took.

    Attributes:
        seconds: From its start to its end.
        processor_s: Processor seconds of all processes.
        loss: Mean training loss in nats.
    """

    seconds: float
    processor_s: float
    loss: float


class Clients(NamedTuple):
    """Hold a federation of small image classifiers.

    Attributes:
        config: Its settings.
        plan: The clients' plan.
        images: Training images, by client.
    """

    config: SimulationConfig
    plan: Plan
    images: dict[str, LabelledImages]


def image_clients(*settings: str) -> Clients:
    """Return the preset's clients, all in every round, with some settings changed."""
    always = ("personalisation.method=global", "rounds.participation_rate=1.0", *settings)
    tables = with_settings(read_tables("fedtp-digits"), [parse_override(text) for text in always])
    config = config_from(tables, "benchmark")
    population = build_population(config, None)
    images = {
        name: own for name, own in population.clients.items() if isinstance(own, LabelledImages)
    }
    return Clients(config, make_plan(config, "00" * 16, cohort_size=len(images)), images)


def measure_versus_bare_loop(repeats: int, worker_count: int) -> dict[str, float]:
    """Return the clients trained in a second here and in the bare loop, at equal loss."""
    clients = image_clients()
    ours, bare = [], []
    with (
        WorkerPool(clients.plan, clients.images, worker_count=worker_count) as pool,
        closing(_bare_loop(clients, worker_count)) as loop,
    ):
        start = _parameters(clients.config)
        # In turns, so that both meet the same weather; the first of each only warms up.
        for _ in range(repeats + 1):
            ours.append(_cost(lambda: _round(clients, pool)))
            bare.append(_cost(lambda: loop.run(start)[1]))
    ours, bare = ours[1:], bare[1:]
    if not abs(ours[0].loss / bare[0].loss - 1) <= LARGEST_LOSS_DIFFERENCE:
        raise SystemExit(f"losses must be equal to 1 %, got {ours[0].loss} and {bare[0].loss}")
    here_s, bare_s = (min(cost.seconds for cost in costs) for costs in (ours, bare))
    here_cpu, bare_cpu = (
        statistics.median(cost.processor_s for cost in costs) for costs in (ours, bare)
    )
    return {
        "versus_bare_loop": bare_s / here_s,
        "versus_bare_loop_processor": bare_cpu / here_cpu,
        "clients_per_s": len(clients.images) / here_s,
        "bare_clients_per_s": len(clients.images) / bare_s,
        "clients_per_processor_s": len(clients.images) / here_cpu,
        "bare_clients_per_processor_s": len(clients.images) / bare_cpu,
        "image_loss": ours[0].loss,
        "bare_image_loss": bare[0].loss,
    }


def measure_together(repeats: int, worker_count: int) -> dict[str, float]:
    """Return what training many clients at once gains on the GPU, or where there is none here.

    The comparison is the simulation itself with the same processes, one client at a time.
    """
    has_gpu = torch.cuda.is_available()
    device, workers = ("cuda", 1) if has_gpu else ("cpu", worker_count)
    group = GPU_GROUP if has_gpu else CPU_GROUP
    # A group for every worker.
    clients = image_clients(f"data.client_count={group * workers}")
    costs: list[list[Cost]] = [[], []]
    with ExitStack() as stack:
        pools = [
            stack.enter_context(
                WorkerPool(
                    clients.plan,
                    clients.images,
                    worker_count=workers,
                    together=together,
                    engine=partial(LocalWorkers, device=device),
                )
            )
            for together in (1, group)
        ]
        for _ in range(repeats + 1):
            for found, pool in zip(costs, pools, strict=True):
                found.append(_cost(partial(_round, clients, pool)))
    single, batched = (found[1:] for found in costs)
    if not abs(single[0].loss / batched[0].loss - 1) <= LARGEST_LOSS_DIFFERENCE:
        raise SystemExit(f"losses must be equal to 1 %, got {single[0].loss} and {batched[0].loss}")
    single_s, batched_s = (min(cost.seconds for cost in run) for run in (single, batched))
    where = "gpu" if has_gpu else "cpu"
    figures = {
        f"{where}_batched_speedup": single_s / batched_s,
        f"{where}_batched_clients_per_s": len(clients.images) / batched_s,
        f"{where}_single_clients_per_s": len(clients.images) / single_s,
    }
    if not has_gpu:
        figures["cpu_batched_speedup_processor"] = statistics.median(
            cost.processor_s for cost in single
        ) / statistics.median(cost.processor_s for cost in batched)
    return figures


def _round(clients: Clients, pool: WorkerPool) -> float:
    """Hold the first round and return its mean loss."""
    federation = Federation(clients.config, clients.plan, list(clients.images), pool)
    return float(federation.run_round()["train_loss"] or 0)


def _cost(work: Callable[[], float]) -> Cost:
    processor_s, started = _processor_s(), time.perf_counter()
    loss = work()
    return Cost(time.perf_counter() - started, _processor_s() - processor_s, loss)


def _processor_s() -> float:
    this = psutil.Process()
    times = [one.cpu_times() for one in (this, *this.children(recursive=True))]
    return sum(time.user + time.system for time in times)


def _bare_loop(clients: Clients, process_count: int) -> BareLoop:
    model, training = clients.config.model, clients.config.training
    if not isinstance(model, VitSettings):
        raise TypeError(f"the preset must have a ViT, got {type(model).__name__}")
    return BareLoop(
        [
            BareClient(own.pixels, own.labels, client_seed(clients.plan.seed, 1, name))
            for name, own in clients.images.items()
        ],
        BareRound(
            model,
            training.learning_rate,
            training.momentum,
            training.local_epochs,
            training.batch_size,
        ),
        process_count,
    )


def _parameters(config: SimulationConfig) -> list[Tensor]:
    """Return what every run starts from, in the network's own order."""
    schema, flat = schema_of(config.model), initial_parameters(config.model, config.seed)
    return [
        flat[schema.slices[name]].view(parameter.shape).clone()
        for name, parameter in build_network(config.model).named_parameters()
    ]
