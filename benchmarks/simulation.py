"""Measure the simulation: what it costs beside training, in time and in memory.

Figures (``--json`` prints them as one object):

    overhead_ms      Milliseconds a client update costs when nobody trains: 1.6 M parameters are
                     loaded into the network, read back, subtracted, clipped, handed over, checked
                     and aggregated. A round of ``clients`` clients, best of ``repeats``.
    bare_ms          The same for the loop in ``comparators/bare_federated_loop.py``.
    peak_rss_mb      Largest memory of all processes together while that round runs, MB; pages that
                     processes share count once.
    gru_round_s      Seconds of one round: tied GRU of 300, 10,000 words, 10 clients of 8,875
                     tokens, one epoch, two workers of one thread.
    default_round_s  The same work in ``comparators/default_torch_round.py`` on two threads. Mean
                     losses differ by at most 1 %, or the benchmark fails.
    versus_bare_loop
                     Clients trained in a second here over those of
                     ``comparators/bare_client_loop.py``: the clients of the preset
                     ``fedtp-digits`` on as many processes, at equal loss; best round of each.
                     ``..._processor`` counts processor seconds of all processes instead, median
                     round of each. All rates stand beside it.
    gpu_batched_speedup
                     Clients a second with a hundred trained at once over one at a time, on the
                     GPU. Without one there is no such figure, and ``cpu_batched_speedup`` is that
                     of the processor with twenty at once in each process.
    rss_mb_100_clients, rss_mb_1000_clients
                     Largest memory of all processes of a run in which every client keeps a model
                     and an optimiser of its own, MB; ``kept_mb_...`` is what they keep on disk,
                     ``run_s_...`` the time of both rounds of a thousand. ``--quick`` has 20 and
                     200 of them, and measures this, and many at once on a processor, only
                     with ``--only``.

The text is the manual inside CPython, the images are the digits inside scikit-learn.
"""

import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Protocol

import torch
from torch import Tensor

from benchmarks.comparators.bare_federated_loop import run_clients
from benchmarks.comparators.default_torch_round import train_clients
from benchmarks.parts.figures import benchmark_parser, show_figures
from benchmarks.parts.memory_watch import watch_of_all
from edge_client.datasets.registry import load_dataset
from edge_client.descent.compute import prepare_compute
from edge_client.personalisation.method import ClientRound, Learnt
from edge_client.personalisation.plain import PlainHalf
from edge_client.training.local_round import LocalTrainer
from models.networks.flat_parameters import initial_parameters, load_parameters
from models.networks.registry import build_network
from models.plan.plan import Plan
from models.settings.model import schema_of
from models.tasks.next_word import NextWord
from models.text.vocabulary import shipped_vocabulary
from models.vector.seeds import client_seed
from server.config.plans import make_plan
from simulation.config.simulation import SimulationConfig, config_from
from simulation.rounds.federation import Federation
from simulation.workers.pool import WorkerPool

WORKERS = 2
GRU_CLIENTS, GRU_TOKENS = 10, 8_875
SMALL_VOCABULARY, SMALL_HIDDEN = 4_690, 256
LARGEST_LOSS_DIFFERENCE = 0.01
LEARNING_RATE, GRADIENT_CLIPPING_NORM = 2.0, 1.0


class Untrained(LocalTrainer):
    """Do everything for a client but train it."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._half = _Idle()


class _Idle(PlainHalf):
    """Leave the received model as it is."""

    def train(self, client: ClientRound) -> Learnt:
        """Train nothing."""
        return Learnt(0.0, {})


def make_config(cohort_size: int, **model: int) -> SimulationConfig:
    """Return a federation in which everybody takes part."""
    vocabulary_size = model["vocabulary_size"]
    tables: dict[str, Any] = {  # TOML values
        "seed": 1,
        "data": {"dataset": "manual", "partition": "users"},
        "vocabulary": {"name": "english-10k", "size": vocabulary_size},
        "model": {"family": "gru_lm", **model},
        "training": {
            "learning_rate": LEARNING_RATE,
            "gradient_clipping_norm": GRADIENT_CLIPPING_NORM,
            "batch_size": 25,
            "bptt_steps": 20,
            "precision": "bfloat16",
        },
        "privacy": {"mode": "none", "clipping_norm": 1000.0},
        "aggregation": {"rule": "mean"},
        "rounds": {
            "cap": 100,
            "cohort_size": cohort_size,
            "quorum": cohort_size,
            "deadline_s": 60.0,
        },
    }
    return config_from(tables, "benchmark")


def measure_overhead(client_count: int, repeats: int) -> dict[str, float]:
    """Return the cost of a client update without training, bare and here."""
    config = make_config(client_count, vocabulary_size=SMALL_VOCABULARY, hidden_size=SMALL_HIDDEN)
    plan = make_plan(config, "00" * 16)
    text = {f"device-{number:04}": torch.arange(2, 22) for number in range(client_count)}
    bare = [
        run_clients(initial_parameters(config.model, 1), client_count)[0] for _ in range(repeats)
    ]
    watch = watch_of_all()
    watch.start()
    with WorkerPool(plan, text, worker_count=WORKERS, trainer=Untrained) as pool:
        federation = Federation(config, plan, list(text), pool)
        federation.run_round()  # warms the workers
        seconds = [_seconds(federation) for _ in range(repeats)]
    watch.stop()
    return {
        "clients": client_count,
        "parameters": schema_of(config.model).element_count,
        "overhead_ms": min(seconds) / client_count * 1e3,
        "bare_ms": min(bare) / client_count * 1e3,
        "peak_rss_mb": watch.peak_bytes / 1e6,
    }


def measure_gru_round(repeats: int) -> dict[str, float]:
    """Return the seconds of a real round, here and in the default loop, at equal loss."""
    config = make_config(GRU_CLIENTS, vocabulary_size=10_000, hidden_size=300)
    plan = make_plan(config, "00" * 16)
    text = _real_text()
    seconds, losses = [], []
    for _ in range(repeats):
        with WorkerPool(plan, text, worker_count=WORKERS) as pool:
            # A round before the measured one starts from the same parameters and warms the workers.
            Federation(config, plan, list(text), pool).run_round()
            figures = Federation(config, plan, list(text), pool).run_round()
        seconds.append(float(figures["round_s"] or 0))
        losses.append(float(figures["train_loss"] or 0))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as fresh_process:
        default_s, default_loss = fresh_process.submit(default_round, repeats).result()
    if not abs(losses[0] / default_loss - 1) <= LARGEST_LOSS_DIFFERENCE:
        raise SystemExit(f"losses must be equal to 1 %, got {losses[0]} and {default_loss}")
    return {
        "gru_round_s": min(seconds),
        "default_round_s": default_s,
        "gru_loss": losses[0],
        "default_loss": default_loss,
    }


def default_round(repeats: int) -> tuple[float, float]:
    """Return the seconds and the mean loss of the default loop; for a process of its own."""
    torch.set_num_threads(WORKERS)
    config = make_config(GRU_CLIENTS, vocabulary_size=10_000, hidden_size=300)
    network = build_network(config.model)
    load_parameters(network, schema_of(config.model), initial_parameters(config.model, 1))
    initial = dict(network.state_dict())
    initial["output.weight"] = initial["embedding.weight"]
    windows = []
    for name, stream in _real_text().items():
        generator = torch.Generator().manual_seed(client_seed(config.seed, 1, name))
        batches = NextWord().batches(stream, config.training, network, generator)
        windows.append([(window.inputs, window.targets) for window in batches])
    runs = [
        train_clients(
            initial,
            windows,
            learning_rate=LEARNING_RATE,
            gradient_clipping_norm=GRADIENT_CLIPPING_NORM,
        )
        for _ in range(repeats)
    ]
    return min(seconds for seconds, _, _ in runs), runs[0][1]


def _real_text() -> dict[str, Tensor]:
    """Return ten clients' streams of the embedded manual, which is read twice over."""
    words = shipped_vocabulary(10_000)
    users = load_dataset("manual", None).train
    numbers = [row for user in sorted(users) for row in words.token_stream(users[user])]
    stream = torch.tensor(numbers * 2)[: GRU_CLIENTS * GRU_TOKENS]
    return {
        f"device-{number:04}": part
        for number, part in enumerate(torch.split(stream, GRU_TOKENS), start=1)
    }


def _seconds(federation: Federation) -> float:
    started = time.perf_counter()
    federation.run_round()
    return time.perf_counter() - started


# Worker processes import this module: what they do not need is imported where it is used, or it
# would count in the memory of each.
def _measure_bare_loop(*, quick: bool) -> dict[str, float]:
    from benchmarks.parts.image_rounds import measure_versus_bare_loop

    return measure_versus_bare_loop(2 if quick else 9, WORKERS)


def _measure_together(*, quick: bool) -> dict[str, float]:
    from benchmarks.parts.image_rounds import measure_together

    return measure_together(3 if quick else 9, WORKERS)


def _measure_many_clients(*, quick: bool) -> dict[str, float]:
    from benchmarks.parts.many_clients import measure_many_clients

    return measure_many_clients(20 if quick else 100, WORKERS)


class _Measurement(Protocol):
    def __call__(self, *, quick: bool) -> dict[str, float]: ...


MEASUREMENTS: dict[str, _Measurement] = {
    "overhead": lambda *, quick: measure_overhead(1000, 1 if quick else 3),
    "gru": lambda *, quick: measure_gru_round(1 if quick else 3),
    "bare-loop": _measure_bare_loop,
    "together": _measure_together,
    "many-clients": _measure_many_clients,
}

ON_DEMAND = ("many-clients",) if torch.cuda.is_available() else ("together", "many-clients")
"""Parts that ``--quick`` measures only if ``--only`` names them: each takes over a minute."""


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="one repeat, not three; the last two on demand")
    parser.add_argument("--only", choices=MEASUREMENTS, help="one measurement instead of all")
    arguments = parser.parse_args()
    prepare_compute("cpu", threads=1)
    figures: dict[str, float] = {}
    for name, measure in MEASUREMENTS.items():
        is_due = name not in ON_DEMAND or not arguments.quick
        if name == arguments.only or (arguments.only is None and is_due):
            figures |= measure(quick=arguments.quick)
    if not torch.cuda.is_available():
        print("no GPU was found: gpu_batched_speedup is not measured", file=sys.stderr)
    show_figures(figures, "Simulation", as_json=arguments.json)


if __name__ == "__main__":
    main()
