"""Measure a masked sum: its error, its bytes, and the time of device, helper and coordinator.

100 clients of a million elements are expected and 20 vanish. Figures (``--json`` prints them as one
object; each goal stands beside its figure as ``..._at_most``):

    relative_error   |unmasked mean - mean of what devices sent| / |mean of what devices sent|, L2
                     norms in float64, at 32 bits without noise. The updates are independent and
                     have the largest norm: no mean is shorter beside the steps of its grid.
    helper_cpu_s     The sum of 100 keystreams.
    client_extra_s   Rounding, noise, mask and packing of one update at 24 bits: what a device does
                     more than one that sends its update in the clear.
    bytes_ratio      Packed update at 24 bits over float32. ``chosen_bits`` is the width that the
                     grid takes by itself for this sum, ``chosen_bytes_ratio`` what it sends.
    close_ratio      The coordinator's close of 80 masked updates (unpacking, adding, unmasking,
                     back from the grid) over its close of the same 80 in the clear (the mean under
                     a guarantee, summed in float64), both without noise of its own.
    rounding_cost    What rounding adds to the sensitivity at 24 bits, as a share of it;
                     ``chosen_rounding_cost`` at the chosen width.

    round10_ratio    A deployed round of 10 devices and 10 million elements with masks and a helper
                     over one without, medians of ``round10_masked_s`` and ``round10_s``. Nobody
                     trains, and a vector's rounding and noise, which are part of training, are in
                     ``client_extra_s``. All processes share this machine.

Times are processor time, the best of several runs, the sides of a ratio taken in turns; those of
deployed rounds are real time.
"""

import math
import os
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.parts.figures import benchmark_parser, show_figures
from benchmarks.parts.masked_deployment import deployed_rounds
from models.vector.schema import Schema, TensorSpec
from privacy.masking.grid import (
    Grid,
    Messages,
    add_share,
    choose_grid,
    finest_grid,
    from_grid,
    to_grid,
)
from privacy.masking.keystream import SEED_BYTES, keystream_sum
from privacy.masking.mask import masked, unmasked
from privacy.masking.packing import add_packed, packed_bytes
from server.aggregation.registry import build_rule
from server.aggregation.settings import MeanSettings

ELEMENTS = 1_000_000
EXPECTED = 100
ARRIVED = 80
# The fewest contributors that such a round is closed with.
HONEST = 60
POOL_SIZE = 10
FLOAT_BYTES = 4
GOALS = {
    "relative_error": 1e-6,
    "helper_cpu_s": 0.3,
    "client_extra_s": 0.4,
    "bytes_ratio": 0.76,
    "close_ratio": 1.5,
    "round10_ratio": 1.4,
}


def messages(noise_multiplier: float) -> Messages:
    """Return the sum of the docstring, with every update of norm 1."""
    return Messages(
        element_count=ELEMENTS,
        norm=1.0,
        sensitivity=1.0,
        contributors=EXPECTED,
        noise_multiplier=noise_multiplier,
        honest=HONEST,
    )


def drawn_update(generator: np.random.Generator) -> NDArray[np.float32]:
    """Return an update of the largest norm, float32, shape ``(ELEMENTS,)``."""
    update = generator.standard_normal(ELEMENTS, dtype=np.float32)
    update *= np.float32((1 - 1e-6) / math.sqrt(float(np.square(update, dtype=np.float64).sum())))
    return update


def masked_update(update: NDArray[np.float32], grid: Grid, seed: bytes) -> memoryview:
    """Do what a device does more than one that sends its update in the clear."""
    rounded = to_grid(update.astype(np.float64), grid, os.urandom(32))
    add_share(rounded, grid, os.urandom(32))
    return masked(rounded, seed, bits=grid.bits)


def masked_close(
    uploads: list[memoryview], keystreams: NDArray[np.uint32], grid: Grid
) -> NDArray[np.float64]:
    """Close a round of masked updates and return their mean."""
    total = np.zeros(ELEMENTS, dtype=np.uint32)
    for upload in uploads:
        add_packed(total, upload, bits=grid.bits)
    mean = from_grid(unmasked(total, keystreams, bits=grid.bits), grid)
    mean /= len(uploads)
    return mean


def plain_close(pool: list[torch.Tensor], schema: Schema) -> torch.Tensor:
    """Close a round of the same updates in the clear and return their mean."""
    rule = build_rule(
        MeanSettings(weighting="equal"),
        schema,
        slot_count=ARRIVED,
        clipping_norm=1.0,
        under_guarantee=True,
    )
    for slot in range(ARRIVED):
        rule.add(slot, pool[slot % POOL_SIZE], 1)
    return rule.result()


def relative_error() -> float:
    """Return the error at 32 bits without noise."""
    generator, grid = np.random.default_rng(0), finest_grid(messages(0.0), 32)
    seeds = [os.urandom(SEED_BYTES) for _ in range(ARRIVED)]
    sent, uploads = np.zeros(ELEMENTS), []
    for seed in seeds:
        update = drawn_update(generator)
        sent += update
        uploads.append(masked_update(update, grid, seed))
    sent /= ARRIVED
    mean = masked_close(uploads, keystream_sum(seeds, ELEMENTS, grid.bits), grid)
    return math.sqrt(float(np.square(mean - sent).sum() / np.square(sent).sum()))


def best_seconds(sides: dict[str, Callable[[], object]], runs: int) -> dict[str, float]:
    """Return the least processor time of each side, the sides taken in turns."""
    best = dict.fromkeys(sides, math.inf)
    for _ in range(runs):
        for name, work in sides.items():
            start = time.process_time()
            work()
            best[name] = min(best[name], time.process_time() - start)
    return best


def times(grid: Grid, runs: int) -> dict[str, float]:
    """Return the processor seconds of device, helper and both closes."""
    generator = np.random.default_rng(1)
    pool = [drawn_update(generator) for _ in range(POOL_SIZE)]
    seeds = [os.urandom(SEED_BYTES) for _ in range(EXPECTED)]
    arrived = seeds[:ARRIVED]
    uploads = [
        masked_update(pool[slot % POOL_SIZE], grid, seed) for slot, seed in enumerate(arrived)
    ]
    keystreams = keystream_sum(arrived, ELEMENTS, grid.bits)
    schema = Schema((TensorSpec(name="weight", shape=(1000, 1000), layer="weight"),))
    tensors = [torch.from_numpy(update) for update in pool]
    return best_seconds(
        {
            "client_extra_s": lambda: masked_update(pool[0], grid, seeds[0]),
            "helper_cpu_s": lambda: keystream_sum(seeds, ELEMENTS, grid.bits),
            "masked_close_s": lambda: masked_close(uploads, keystreams, grid),
            "plain_close_s": lambda: plain_close(tensors, schema),
        },
        runs,
    )


def measure(runs: int, rounds: int) -> dict[str, float]:
    """Return all figures, each goal beside its figure."""
    noised = messages(1.0)
    grid, chosen = finest_grid(noised, 24), choose_grid(noised)
    figures: dict[str, float] = {"relative_error": relative_error()}
    figures |= times(grid, runs)
    figures["close_ratio"] = figures["masked_close_s"] / figures["plain_close_s"]
    for name, one in (("", grid), ("chosen_", chosen)):
        size = packed_bytes(ELEMENTS, one.bits)
        figures[f"{name}bytes_ratio"] = size / (FLOAT_BYTES * ELEMENTS)
        figures[f"{name}rounding_cost"] = one.rounded_norm / noised.norm - 1
    figures["chosen_bits"] = chosen.bits
    figures |= deployed_rounds(rounds)
    return figures | {f"{name}_at_most": goal for name, goal in GOALS.items()}


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="fewer runs (under a minute)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    figures = measure(3, 3) if arguments.quick else measure(15, 10)
    show_figures(figures, "Secure sum", as_json=arguments.json)
    if not arguments.json:
        for name, goal in GOALS.items():
            verdict = "met" if figures[name] <= goal else "MISSED"
            print(f"{name} {figures[name]:.3g}, at most {goal:g}: {verdict}")


if __name__ == "__main__":
    main()
