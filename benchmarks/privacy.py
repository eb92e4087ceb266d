"""Measure what privacy costs in time.

Figures (``--json`` prints them as one object):

    noise_versus_numpy   Time to clip an update of 10 million parameters and add calibrated noise
                         from the cryptographic generator, over the time numpy takes to draw as
                         many normals (``Generator.normal``, which is neither secret nor on a grid).
    dpsgd_slowdown       Processor time of a step of local training that hides each example
                         (clipping, noise and all), over that of the same step without: tied
                         GRU-300, 10,000 words, 20 sentences of 35 tokens, one thread.
    opacus_hooks_slowdown
                         The same for Opacus' hooks on the same model, over the same plain step.
    calibration_s        Processor time to find the noise multiplier of epsilon 8 at delta 1e-6 over
                         1,000 rounds of one in a hundred, libraries loaded. Our limit is 3 s.

Each time is the best of several runs, the sides taken in turns; on the clock where not said
otherwise.
"""

import math
import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.parts.example_privacy import measure_example_privacy
from benchmarks.parts.figures import benchmark_parser, show_figures
from privacy.accounting.calibration import noise_multiplier_for
from privacy.clipping.clip import clip
from privacy.noise.secure_gaussian import Draw, SystemKeys, add_gaussian, calibrate

ELEMENTS = 10_000_000


def clip_and_noise(update: torch.Tensor) -> None:
    """Clip an update that is twice too long and noise it, as mode ``local`` does."""
    clipped, _ = clip(update, 1.0)
    calibration = calibrate(noise_multiplier=1.0, sensitivity=2.0, element_count=ELEMENTS)
    add_gaussian(clipped, calibration, [Draw(SystemKeys().draw("benchmark"))])


def best_seconds(sides: dict[str, Callable[[], object]], runs: int) -> dict[str, float]:
    """Return the best time of each side, the sides taken in turns."""
    best = dict.fromkeys(sides, math.inf)
    for _ in range(runs):
        for name, work in sides.items():
            start = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def measure(runs: int) -> dict[str, float]:
    """Run both sides and return the figures."""
    update = torch.full((ELEMENTS,), 2.0 / math.sqrt(ELEMENTS))
    generator = np.random.default_rng(0)
    times = best_seconds(
        {
            "noise": lambda: clip_and_noise(update),
            "numpy": lambda: generator.normal(0.0, 1.0, ELEMENTS),
        },
        runs,
    )
    return {
        "elements": ELEMENTS,
        "noise_s": times["noise"],
        "numpy_s": times["numpy"],
        "noise_versus_numpy": times["noise"] / times["numpy"],
    }


def measure_calibration(runs: int) -> dict[str, float]:
    """Find a noise multiplier, which is what whoever chooses a budget waits for."""
    noise_multiplier_for(8.0, 1e-5, 10, 0.1)
    seconds = []
    for _ in range(runs):
        started = time.process_time()
        noise_multiplier_for(8.0, 1e-6, 1000, 0.01)
        seconds.append(time.process_time() - started)
    return {"calibration_s": min(seconds)}


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="fewer runs (a few seconds)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    figures = measure(8 if arguments.quick else 40)
    step_count, repeats = (4, 3) if arguments.quick else (8, 5)
    figures |= measure_example_privacy(step_count, repeats)
    figures |= measure_calibration(repeats)
    show_figures(figures, "Privacy", as_json=arguments.json)


if __name__ == "__main__":
    main()
