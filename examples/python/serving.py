"""From a run to a keyboard that suggests words, and to one person's own.

python -m examples.python.serving FOLDER
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


def main(folder: Path) -> list[str]:
    """Export a run as a keyboard, and return the words that it suggests."""
    # %% The run of examples.python.devices: read, if that was run with this folder.
    run = sotto.simulate("keyboard-tiny", data={"client_count": 60}, out=folder / "run", **SMALL)

    # %% A bundle. Its graph is compared with torch before it is written.
    bundle = folder / "keyboard.zip"
    report = run.export(bundle)
    print(f"{bundle}: {report['parity']}")

    # %% Suggestions, as a device makes them; this part needs sotto[export] alone.
    keyboard = sotto.Keyboard.load(bundle)
    for text in ("", "this is ", "the t"):
        words = ", ".join(f"{one.word} {one.probability:.2f}" for one in keyboard.suggest(text))
        print(f"{text!r}: {words}")
    return [one.word for one in keyboard.suggest("this is ")]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
