"""From a target epsilon to the noise of a federation, and what the noise costs the model.

python -m examples.python.noise FOLDER
"""

import sys
from pathlib import Path

import sotto

ROUNDS, DELTA = 2, 1e-6
# Small, so that it takes seconds: 60 devices with the manual inside Python.
SMALL = {
    "rounds": {"cap": ROUNDS},
    "vocabulary": {"size": 50},
    "model": {"vocabulary_size": 50, "hidden_size": 8},
}


def main(folder: Path) -> sotto.Sweep:
    """Find the noise of three budgets, and return what each does to the model."""
    # %% How much noise a budget asks for, and what comes back if it is spent.
    noise = {}
    for target in (1.0, 4.0, 8.0):
        found = sotto.noise_for(target, rounds=1000, delta=DELTA, sampling_rate=0.01)
        noise[target] = float(found["noise_multiplier"] or 0)
        print(f"epsilon {target:g}: noise multiplier {noise[target]:g}")
    spent = sotto.epsilon(rounds=1000, delta=DELTA, sampling_rate=0.01, noise_multiplier=noise[8.0])
    print(f"spent at the end: {spent['epsilon']:.3f}, half of the way: ", end="")
    half = sotto.epsilon(rounds=500, delta=DELTA, sampling_rate=0.01, noise_multiplier=noise[8.0])
    print(f"{half['epsilon']:.3f}")

    # %% The start of such a run, with the noise that each budget asks for.
    table = sotto.sweep(
        "keyboard-tiny",
        {"privacy.noise_multiplier": list(noise.values())},
        data={"client_count": 60},
        vocabulary=SMALL["vocabulary"],
        out=folder / "sweep",
    )
    print(table)
    return table
