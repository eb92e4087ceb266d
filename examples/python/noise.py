"""From a target epsilon to the noise of a federation, and what the noise costs the model.

python -m examples.python.noise FOLDER
"""

import sys
from pathlib import Path

import sotto

DELTA = 1e-6
# Small, so that it takes seconds: 60 devices with the manual inside Python, drawn by secret coins.
DRAWN = {
    "cap": 2,
    "selection": "sampled",
    "participation_rate": 0.25,
    "population_size": 60,
    "quorum": 1,
    "close_early": False,
    "cohort_size": None,
}
GUARANTEE = {
    "mode": "central",
    "clipping_norm": 2.0,
    "delta": 1e-3,
    "epsilon_budget": 100.0,
    "adjacency": "zero-out",
}


def main(folder: Path) -> sotto.Sweep:
    """Find the noise of two budgets, and return what each does to the model."""
    # %% How much noise a budget asks for, and what comes back if it is spent.
    noise = {}
    for target in (2.0, 8.0):
        found = sotto.noise_for(target, rounds=100, delta=DELTA, sampling_rate=0.01)
        noise[target] = found["noise_multiplier"]
        print(f"epsilon {target:g}: noise multiplier {noise[target]:g}")
    spent = sotto.epsilon(rounds=100, delta=DELTA, sampling_rate=0.01, noise_multiplier=noise[8.0])
    print(f"spent at the end: {spent['epsilon']:.3f}")

    # %% What a model learns under such noise: a sweep has a table and a picture.
    table = sotto.sweep(
        "keyboard-tiny",
        {"privacy.noise_multiplier": [noise[8.0], noise[2.0]]},
        data={"client_count": 60},
        vocabulary={"size": 50},
        model={"vocabulary_size": 50, "hidden_size": 8},
        privacy=GUARANTEE,
        rounds=DRAWN,
        out=folder / "sweep",
    )
    print(table)

    # %% What the run with less noise spent, round by round, out of its own budget.
    run = sotto.Run.load(folder / "sweep" / f"privacy.noise_multiplier={noise[8.0]}" / "seed-1")
    for number, epsilon in zip(*run.series("epsilon"), strict=True):
        print(f"after round {number}: epsilon {epsilon:.2f} at delta {GUARANTEE['delta']:g}")
    return table


if __name__ == "__main__":
    main(Path(sys.argv[1]))
