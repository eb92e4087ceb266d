"""Measure a device: local training against the loop anybody would write, and the agent at rest.

Figures (``--json`` prints them as one object):

    versus_default_loop   Time of a bare, default PyTorch float32 loop over the time of a device's
                          local training, on the same model, parameters, windows and optimiser. The
                          mean losses of the two differ by at most 1 %, or the benchmark fails.
    versus_default_loop_float32
                          The same with the plan's precision left at float32.
    matmul_float32_gflops, matmul_bfloat16_gflops
                          10^9 operations a second of this machine at the model's largest products,
                          torch left as it comes, and bfloat16 as a device multiplies.
    versus_matmul         ``versus_default_loop`` over the ratio of the two: how much of what this
                          machine's bfloat16 offers becomes faster training.
    client_s, client_float32_s, default_loop_s
                          Seconds of one client's round: ``tokens`` target tokens, one epoch.
    agent_rss_mb          Resident memory of ``sotto-client run`` while it waits for its first work,
                          MB.
    start_to_checkin_s    Seconds from starting it to the coordinator counting it as checked in.

The model is the tied GRU of width 300 with 10,000 words; the text is the manual inside CPython,
unless ``--data`` names another. Each side is a process of its own, prepared as such a process is,
all with the same number of threads (``--threads``); times are the best of several, the sides
taken in turns.
"""

import math
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from benchmarks.comparators.default_torch_round import train_clients
from benchmarks.parts.figures import benchmark_parser, show_figures
from benchmarks.parts.matmul_rates import Product, product_gflops
from benchmarks.parts.resting_agent import measure_agent
from edge_client.datasets.registry import load_dataset
from edge_client.descent.compute import prepare_compute
from edge_client.training.local_round import LocalTrainer
from models.networks.flat_parameters import initial_parameters, load_parameters
from models.networks.registry import build_network
from models.plan.plan import Plan, TrainingSettings, VocabularySettings
from models.settings.model import GruLmSettings, schema_of
from models.tasks.next_word import NextWord
from models.text.vocabulary import shipped_vocabulary
from models.vector.seeds import client_seed
from privacy.noise.settings import NoNoise

MODEL = GruLmSettings(vocabulary_size=10_000, hidden_size=300, tied=True)
CLIENT = "device-0001"
BATCH_SIZE, BPTT_STEPS = 20, 35
WINDOW_WORDS = BATCH_SIZE * BPTT_STEPS
# Words of a window, width and vocabulary: the scores of all words, and their gradients on either
# side. They are most of the work of this model.
LARGEST_PRODUCTS = [
    Product(WINDOW_WORDS, MODEL.hidden_size, MODEL.vocabulary_size),
    Product(WINDOW_WORDS, MODEL.vocabulary_size, MODEL.hidden_size),
    Product(MODEL.vocabulary_size, WINDOW_WORDS, MODEL.hidden_size),
]
LARGEST_LOSS_DIFFERENCE = 0.01


@dataclass(frozen=True)
class Work:
    """Hold what one client does: a text as int64 numbers, and the plan."""

    stream: Tensor
    plan: Plan


def make_work(
    tokens: int, precision: Literal["bfloat16", "float32"], data: tuple[str, Path | None]
) -> Work:
    """Return the round of one client with so many tokens."""
    words = shipped_vocabulary(MODEL.vocabulary_size)
    text = load_dataset(*data).train
    numbers = [row for user in sorted(text) for row in words.token_stream(text[user])]
    plan = Plan(
        run="00" * 16,
        model=MODEL,
        schema_sha256=schema_of(MODEL).sha256.hex(),
        vocabulary=VocabularySettings(
            name="english-10k", size=len(words), sha256=words.sha256.hex()
        ),
        training=TrainingSettings(
            learning_rate=1.0,
            gradient_clipping_norm=1.0,
            batch_size=BATCH_SIZE,
            bptt_steps=BPTT_STEPS,
            precision=precision,
        ),
        privacy=NoNoise(),
        cohort_size=1,
        seed=1,
    )
    # A multiple of the batch: the bare loop knows no padding.
    tokens = min(tokens, len(numbers)) // BATCH_SIZE * BATCH_SIZE
    return Work(torch.tensor(numbers[:tokens]), plan)


def train_as_device(work: Work) -> tuple[float, float]:
    """Return the seconds and the mean loss of a device's round, building its network included."""
    parameters = initial_parameters(MODEL, seed=0)
    started = time.perf_counter()
    result = LocalTrainer(work.plan).train(
        parameters, work.stream, round_number=1, client_name=CLIENT
    )
    return time.perf_counter() - started, result.mean_loss


def train_by_default_loop(work: Work) -> tuple[float, float]:
    """Return the seconds and the mean loss of the bare loop over the same windows."""
    network = build_network(MODEL)
    load_parameters(network, schema_of(MODEL), initial_parameters(MODEL, seed=0))
    initial = dict(network.state_dict())
    initial["output.weight"] = initial["embedding.weight"]
    generator = torch.Generator().manual_seed(client_seed(work.plan.seed, 1, CLIENT))
    windows = NextWord().batches(work.stream, work.plan.training, network, generator)
    seconds, loss, _ = train_clients(
        initial,
        [[(window.inputs, window.targets) for window in windows]],
        learning_rate=work.plan.training.learning_rate,
        gradient_clipping_norm=work.plan.training.gradient_clipping_norm or math.inf,
    )
    return seconds, loss


def prepare_device(threads: int) -> None:
    """Do what the device's training process does first."""
    prepare_compute("cpu", threads)


def leave_defaults(threads: int) -> None:
    """Leave torch as it comes, but for the threads."""
    torch.set_num_threads(threads)


def measure_training(
    tokens: int, repeats: int, threads: int, data: tuple[str, Path | None]
) -> dict[str, float]:
    """Run the sides in turns and return the figures of local training."""
    fast, exact = make_work(tokens, "bfloat16", data), make_work(tokens, "float32", data)
    sides: dict[str, tuple[Callable[[int], None], Callable[[Work], tuple[float, float]], Work]] = {
        "client": (prepare_device, train_as_device, fast),
        "client_float32": (prepare_device, train_as_device, exact),
        "default_loop": (leave_defaults, train_by_default_loop, exact),
    }
    context = multiprocessing.get_context("spawn")
    best = dict.fromkeys(sides, math.inf)
    losses: dict[str, float] = {}
    pools = {
        name: ProcessPoolExecutor(1, mp_context=context, initializer=prepare, initargs=(threads,))
        for name, (prepare, _, _) in sides.items()
    }
    try:
        for _ in range(1 + repeats):  # the first turn warms every process
            for name, (_, train, work) in sides.items():
                seconds, losses[name] = pools[name].submit(train, work).result()
                best[name] = min(best[name], seconds)
        rates = {
            dtype: pools[side].submit(product_gflops, LARGEST_PRODUCTS, dtype, 10).result()
            for side, dtype in (("default_loop", torch.float32), ("client", torch.bfloat16))
        }
    finally:
        for pool in pools.values():
            pool.shutdown()
    check_losses(losses)
    versus = best["default_loop"] / best["client"]
    return {
        "tokens": len(fast.stream),
        "threads": threads,
        "client_s": best["client"],
        "client_float32_s": best["client_float32"],
        "default_loop_s": best["default_loop"],
        "versus_default_loop": versus,
        "matmul_float32_gflops": rates[torch.float32],
        "matmul_bfloat16_gflops": rates[torch.bfloat16],
        "versus_matmul": versus * rates[torch.float32] / rates[torch.bfloat16],
        "versus_default_loop_float32": best["default_loop"] / best["client_float32"],
        **{f"{name}_loss": loss for name, loss in losses.items()},
    }


def check_losses(losses: dict[str, float]) -> None:
    """Fail where a side is fast because it learns less."""
    low, high = min(losses.values()), max(losses.values())
    if not high <= low * (1 + LARGEST_LOSS_DIFFERENCE):
        raise SystemExit(f"the sides must end with losses within 1 % of each other, got {losses}")


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="8,860 tokens instead of 40,000")
    parser.add_argument("--data", type=Path, help="PTB folder; without it the embedded manual")
    parser.add_argument("--threads", type=int, default=1, help="threads of every side")
    arguments = parser.parse_args()
    data = ("ptb", arguments.data) if arguments.data else ("manual", None)
    tokens, repeats = (8_860, 2) if arguments.quick else (40_000, 3)
    figures = measure_agent(2 if arguments.quick else 3) | measure_training(
        tokens, repeats, arguments.threads, data
    )
    show_figures(figures, "One device", as_json=arguments.json)


if __name__ == "__main__":
    main()
