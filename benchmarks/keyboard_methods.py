"""Measure every way to a model of one's own from a public start that has attention.

The shipped start is a GRU with a tied output: FedPer needs an output of its own and FedTP needs
attention. So a small Transformer learns public comments first (Reddit, 8 epochs), 50 phone users
train it together from there, and each is scored on their own newest fifth: with everyone's model,
with that one after some epochs on their own text, with an output of their own (FedPer) and with
attention that a hypernetwork makes for them (FedTP). FedTP's hypernetwork begins at the start's
attention; FedPer's outputs begin at random, as a device draws what never travels.

    python -m benchmarks.keyboard_methods --data DATA --work WORK --json

A stopped command goes on with the same ``--work``. Once the start is learnt, several commands with
a ``--seed`` each run side by side; one without then shows the figures of all.

Figures (``--json`` prints them as one object), means over the seeds with ``_sd``, their sample
standard deviation, beside them; METHOD is ``shared``, ``tuned_1``, ``tuned_2``, ``tuned_4``
(epochs), ``fedper`` or ``fedtp``:

    start.top3               Recall at 3 of the start on comments held out.
    METHOD.keystroke_savings, METHOD.top1, METHOD.top3
                             Keys saved, and recall of typed words, over all users' text.
    METHOD.losing            Users of 50 who save fewer keys than with everyone's model.
"""

import argparse
import statistics
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from pathlib import Path

import msgspec

from benchmarks.parts.figures import benchmark_parser, show_figures
from simulation.cli import main as simulate
from simulation.runs.checkpoint import FINAL_FILE, RELEASES_FOLDER
from simulation.runs.own_figures import compare, own_figures

SEEDS = (1, 2, 3)
TUNED = (1, 2, 4)
KEYS = "keystroke_savings"
_PRESET = "fedtp-keyboard"
_SHARED = 'personalisation={method="global"}'
_METHODS = {
    "shared": (_SHARED, f"data.fine_tuning_epochs={list(TUNED)}"),
    "fedper": ('personalisation={method="fedper"}',),
    "fedtp": (),
}
_START = (
    _SHARED,
    'data.dataset="reddit"',
    'data.partition="iid"',
    'data.split="held-out"',
    "data.client_count=1",
    "training.batch_size=16",
    "training.example_cap=10000000",
    "evaluation.every_rounds=1",
)
_WORDS = 5000
_EPOCHS = 8


class _Command:
    """The runs of one command, in a folder that a stopped one goes on in."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._data: Path = arguments.data
        self._work: Path = arguments.work / ("quick" if arguments.quick else "whole")
        self._quick: bool = arguments.quick

    def start(self) -> Path:
        """Return the folder of a start's release, learnt if it is missing."""
        epochs = 2 if self._quick else _EPOCHS
        rounds = f"rounds={{cap={epochs}, cohort_size=1, quorum=1, deadline_s=900.0}}"
        decay = f"training.decay={{last_round={epochs}, final_share=0.05}}"
        folder = self._run("start", *_START, rounds, decay)
        return folder / RELEASES_FOLDER / f"{epochs:06d}"

    def method(self, name: str, seed: int, start: Path) -> Path:
        """Return the folder of a method's run with a seed."""
        short = ("rounds.cap=2", "rounds.participation_rate=0.1") if self._quick else ()
        settings = (*_METHODS[name], f'start_from="{start}"', f"seed={seed}", *short)
        return self._run(f"{name}-{seed}", *settings)

    def _run(self, name: str, *settings: str) -> Path:
        folder = self._work / name
        if not (folder / FINAL_FILE).exists():
            words = 500 if self._quick else _WORDS
            settings = (
                f'vocabulary={{name="english-10k", size={words}}}',
                f"model.vocabulary_size={words}",
                *settings,
            )
            sets = [word for setting in settings for word in ("--set", setting)]
            place = ["--data", str(self._data), "--out", str(folder), "--workers", "1"]
            with redirect_stdout(sys.stderr):  # The object of figures stands alone on the other.
                code = simulate(["run", _PRESET, *place, *sets])
            if code:
                raise SystemExit(f"the run {name} failed; the same command goes on with it")
        return folder


def figures_of(start: Path, folders: Mapping[str, list[Path]]) -> Iterator[tuple[str, float]]:
    """Yield every figure with its name.

    Args:
        start: Folder of the start's run.
        folders: Folders of each method's runs, one a seed.
    """
    yield "start.top3", _final(start)["test_top3_recall"]
    for method, of_method in folders.items():
        yield from _told(method, of_method, folders["shared"], "")
        if method == "shared":
            for epochs in TUNED:
                yield from _told(f"tuned_{epochs}", of_method, of_method, f"fine_tuned_{epochs}_")


def _told(
    name: str, folders: list[Path], shared: list[Path], prefix: str
) -> Iterator[tuple[str, float]]:
    """Yield the figures of a method, whose names in a run begin with ``prefix``."""
    finals = [_final(folder) for folder in folders]
    found = {
        KEYS: [final[f"{prefix}{KEYS}"] for final in finals],
        "top1": [final[f"{prefix}accuracy"] for final in finals],
        "top3": [final[f"{prefix}top3_recall"] for final in finals],
    }
    if name != "shared":
        after = int(name.removeprefix("tuned_")) if prefix else None
        found["losing"] = [
            compare(own_figures(own, fine_tuned=after)[KEYS], own_figures(other)[KEYS]).losing
            for own, other in zip(folders, shared, strict=True)
        ]
    for figure, values in found.items():
        yield f"{name}.{figure}", statistics.fmean(values)
        if len(values) > 1:
            yield f"{name}.{figure}_sd", statistics.stdev(values)


def _final(folder: Path) -> dict[str, float]:
    return msgspec.json.decode((folder / FINAL_FILE).read_bytes())  # type: ignore[no-any-return]


def main() -> None:
    """Learn what is missing, and show the figures of all seeds."""
    parser = benchmark_parser(__doc__, quick="the machinery: 500 words, 2 epochs, 2 rounds, 1 seed")
    parser.add_argument("--data", type=Path, required=True, help="folder of the public data")
    parser.add_argument("--work", type=Path, required=True, help="folder to work in")
    parser.add_argument("--seed", type=int, choices=SEEDS, help="one seed alone, without figures")
    arguments = parser.parse_args()
    command = _Command(arguments)
    start = command.start()
    seeds = (arguments.seed,) if arguments.seed else SEEDS[:1] if arguments.quick else SEEDS
    folders = {name: [command.method(name, seed, start) for seed in seeds] for name in _METHODS}
    if arguments.seed is None:
        figures = dict(figures_of(start.parents[1], folders))
        show_figures(figures, "Models of one's own from a public start", as_json=arguments.json)


if __name__ == "__main__":
    main()
