"""Before devices are deployed: which rule, what travels, and what the model learns.

python -m examples.python.devices FOLDER
"""

import sys
from pathlib import Path
from typing import Any

import sotto

# Small, so that it takes seconds: 60 devices with the manual inside Python.
SMALL: dict[str, Any] = {
    "rounds": {"cap": 2},
    "vocabulary": {"size": 50},
    "model": {"vocabulary_size": 50, "hidden_size": 8},
}


def main(folder: Path) -> dict[str, float]:
    """Compare sizes of a cohort, and return the bytes that a device sends in a round, by size."""
    # %% A run: the same call reads it the next time.
    run = sotto.simulate("keyboard-tiny", data={"client_count": 60}, out=folder / "run", **SMALL)
    print(run)

    # %% What is learnt, round by round.
    rounds, perplexity = run.series("valid_perplexity")
    for number, value in zip(rounds, perplexity, strict=True):
        print(f"round {number}: perplexity {value:.1f}")
    picture = run.plot("valid_perplexity", path=folder / "perplexity.png")
    print(f"drawn: {picture.path}")

    # %% What a device sends: 4 bytes a parameter, or one with "int8".
    small = sotto.simulate(
        "keyboard-tiny",
        data={"client_count": 60},
        compression={"uplink": "int8"},
        out=folder / "int8",
        **SMALL,
    )
    sent = {}
    for name, one in (("float32", run), ("int8", small)):
        _, uploaded = one.series("bytes_up")
        _, cohort = one.series("cohort")
        sent[name] = float(uploaded.sum() / cohort.sum())
        print(f"{name}: {sent[name]:,.0f} bytes from a device in a round")

    # %% The network itself, for whatever else is to be measured.
    model = run.model()
    print(f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters")
    return sent


if __name__ == "__main__":
    main(Path(sys.argv[1]))
