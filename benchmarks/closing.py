"""Measure the close of a round of sealed updates with one worker and with two, in turns.

1,000 clients of a million float32 each, 4 MB sealed: every update is read, its signature checked,
its key unwrapped, its bytes decrypted, its norms measured, and it is added by attentive weights.
Figures (``--json`` prints them as one object):

    close_s_1, close_s_2     Best time of a close with 1 worker and with 2.
    speedup                  close_s_1 over close_s_2; the goal is at least 1.5.
    speedup_paired           Median over pairs of neighbouring closes.
    processor_s_1, ..._2     Least processor time of a close: what the second worker costs.
    same_bits                Whether all closes, one with 16 workers too, end in one model.
    rss_mb_1, ..._2, ..._16  Peak memory of the process that closes, libraries included; MB of 10^6.
    idle_mb                  Memory of such a process before its first close.
    prefix_ms                Of one update: to check a signature and to unwrap a key.
    open_ms                  To read and open it, prefix included.
    measure_ms               To measure its norms.
    add_ms, add_wide_ms      To add it to a sum in float32, or float64 as under a guarantee.
    open_threads, measure_threads, add_threads, add_wide_threads
                             How much more two threads do of each in a time than one: 2 if the work
                             releases the interpreter and nothing else is short.
    load                     Processes that wanted a core in the minute before.

96 files serve all clients in turn, and lie in the kernel's cache. One worker works in one thread;
two workers are two threads, beside one that hands out their work. Another program's load makes
two workers look worse, for it takes a core from them and not from the one.
"""

import os
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import torch

from benchmarks.parts.figures import benchmark_parser, show_figures
from benchmarks.parts.sealed_cohort import ClosingProcess, SealedCohort
from models.vector.layers import whole_model
from server.aggregation.closing_workers import ClosingWorkers
from server.aggregation.weighted.weighing import Weight
from server.aggregation.weighted.weighted_sum import WeightedSum

ELEMENTS = 1_000_000
CLIENT_COUNT = 1_000
GOAL = 1.5
_STAGE_RUNS = 5


def stages(cohort: SealedCohort, tiny: SealedCohort) -> dict[str, Callable[[int], object]]:
    """Return the work of one update by name, each for the update of a place; safe in threads."""
    opener, small = cohort.opener(2), tiny.opener(2)
    terms = cohort.terms(ClosingWorkers())
    updates = torch.randn(8, ELEMENTS, generator=torch.Generator().manual_seed(0)) / 2000
    sums = threading.local()

    def opened(place: int) -> None:
        with opener.opened(cohort.files[place % len(cohort.files)]):
            pass

    def opened_small(place: int) -> None:
        with small.opened(tiny.files[place % len(tiny.files)]):
            pass

    def added(place: int, dtype: torch.dtype) -> None:
        name = str(dtype)
        if not hasattr(sums, name):
            setattr(sums, name, WeightedSum(whole_model(cohort.schema), ELEMENTS, dtype))
        getattr(sums, name).add(updates[place % 8], [Weight(0.5)], factor=1.0)

    return {
        "prefix": opened_small,
        "open": opened,
        "measure": lambda place: terms.examine(updates[place % 8]),
        "add": lambda place: added(place, torch.float32),
        "add_wide": lambda place: added(place, torch.float64),
    }


def stage_figures(cohort: SealedCohort, tiny: SealedCohort) -> dict[str, float]:
    """Return each stage's milliseconds, and how much more two threads do in a time than one."""
    figures: dict[str, float] = {}
    for name, work in stages(cohort, tiny).items():
        _seconds(work, 2)
        alone = [_seconds(work, 1) for _ in range(_STAGE_RUNS)]
        together = [_seconds(work, 2) for _ in range(_STAGE_RUNS)]
        figures[f"{name}_ms"] = 1000 * min(alone)
        figures[f"{name}_threads"] = 2 * min(alone) / min(together)
    return figures


def _seconds(work: Callable[[int], object], threads: int, count: int = 96) -> float:
    """Return the time in which every thread has worked on ``count`` updates, for one of them."""

    def loop(first: int) -> None:
        for place in range(first, first + count):
            work(place)

    running = [threading.Thread(target=loop, args=(48 * one,)) for one in range(threads)]
    began = time.perf_counter()
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return (time.perf_counter() - began) / count


def closing_figures(cohort: SealedCohort, pairs: int) -> dict[str, float]:
    """Close with one worker and with two in turns, and once with sixteen."""
    with ExitStack() as stack:
        sides = {count: ClosingProcess(cohort, count) for count in (1, 2, 16)}
        for side in sides.values():
            stack.callback(side.end)
        closed = {count: [sides[count].close_round()] for count in sides}
        for _ in range(pairs):
            for count in (1, 2):
                closed[count].append(sides[count].close_round())
    # The first of each touched its memory and loaded its code.
    timed = {count: closed[count][1:] for count in (1, 2)}
    best = {count: min(one.seconds for one in timed[count]) for count in timed}
    ratios = [one.seconds / two.seconds for one, two in zip(timed[1], timed[2], strict=True)]
    digests = {one.sha256 for each in closed.values() for one in each}
    return {
        "close_s_1": best[1],
        "close_s_2": best[2],
        "speedup": best[1] / best[2],
        "speedup_paired": median(ratios),
        **{f"processor_s_{count}": min(one.processor_s for one in timed[count]) for count in timed},
        "same_bits": len(digests) == 1,
        "idle_mb": closed[1][0].idle_mb,
        **{f"rss_mb_{count}": closed[count][-1].peak_mb for count in closed},
    }


def measure(pairs: int) -> dict[str, float]:
    """Seal a cohort and return all figures."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tiny").mkdir()
        (Path(folder) / "whole").mkdir()
        tiny = SealedCohort.make(Path(folder) / "tiny", 1_000, CLIENT_COUNT)
        cohort = SealedCohort.make(Path(folder) / "whole", ELEMENTS, CLIENT_COUNT)
        return (
            {"clients": CLIENT_COUNT, "elements": ELEMENTS}
            | closing_figures(cohort, pairs)
            | stage_figures(cohort, tiny)
            | {"load": load}
        )


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="fewer pairs (under a minute)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    figures = measure(4 if arguments.quick else 15)
    show_figures(figures, "Closing", as_json=arguments.json)
    if not arguments.json:
        verdict = "met" if figures["speedup"] >= GOAL else "MISSED"
        print(f"speedup {figures['speedup']:.2f}, at least {GOAL}: {verdict}")


if __name__ == "__main__":
    main()
