"""Read what a finished run says of each client, and count who is better off with another model.

A mean hides the clients that a method serves worse than the shared model does. Here each client is
compared with itself: the same test examples, another model.
"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from models.tasks.keystrokes import KeystrokeCounts
from models.tasks.metrics import Counts
from simulation.config.run_files import read_run_file
from simulation.runs.checkpoint import CLIENTS_FILE, FINE_TUNED_FILE, KEYSTROKES_FILE
from simulation.workers.fine_tuning import OwnScore

OwnFigures = Mapping[str, Mapping[str, float]]
"""Figures by name, each by client; higher is better."""


T = TypeVar("T")


class NoOwnFiguresError(ValueError):
    """Raised when a run holds no such figures of single clients; the text says which."""


class Comparison(NamedTuple):
    """Clients with one model against another.

    Attributes:
        quartiles: First quartile, median and third of the differences over clients.
        spread: Sample standard deviation of the differences over clients; 0 for one client.
    """

    client_count: int
    losing: int
    winning: int
    quartiles: tuple[float, float, float]
    mean: float
    spread: float


def own_figures(folder: Path, *, fine_tuned: int | None = None) -> OwnFigures:
    """Return the figures of each client's own model on its own test examples.

    They are ``accuracy`` and ``top3_recall``, and ``keystroke_savings`` where keys were counted.
    Clients without a target, or a word, are missing. ``fine_tuned`` selects the models after that
    many epochs of fine-tuning.

    Raises:
        NoOwnFiguresError: If the run wrote no such figures.
    """
    scores = _tuned(folder, fine_tuned) if fine_tuned is not None else _own(folder)
    scored = {client: own.counts for client, own in scores.items() if own.counts.word_count}
    typed = {
        client: own.keys
        for client, own in scores.items()
        if own.keys is not None and own.keys.keys_without
    }
    return {
        "accuracy": {client: own.accuracy for client, own in scored.items()},
        "top3_recall": {client: own.top3_recall for client, own in scored.items()},
        **(
            {"keystroke_savings": {who: own.savings for who, own in typed.items()}} if typed else {}
        ),
    }


def compare(own: Mapping[str, float], reference: Mapping[str, float]) -> Comparison:
    """Compare each client's figure with the same client's under another model; higher is better.

    Raises:
        ValueError: If they are not of the same clients, at least one.
    """
    if not own or own.keys() != reference.keys():
        raise ValueError(
            f"both models must be measured on the same clients, got {len(own)} and {len(reference)}"
        )
    differences = [own[client] - reference[client] for client in own]
    return Comparison(
        client_count=len(differences),
        losing=sum(difference < 0 for difference in differences),
        winning=sum(difference > 0 for difference in differences),
        quartiles=_quartiles(differences),
        mean=statistics.fmean(differences),
        spread=statistics.stdev(differences) if len(differences) > 1 else 0.0,
    )


def mean_figures(runs: Sequence[OwnFigures]) -> dict[str, dict[str, float]]:
    """Return each client's mean over runs of different seeds, of the same clients."""
    return {
        name: {
            client: statistics.fmean(run[name][client] for run in runs) for client in runs[0][name]
        }
        for name in runs[0]
    }


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) == 1:
        return values[0], values[0], values[0]
    first, median, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, median, third


def _own(folder: Path) -> dict[str, OwnScore]:
    counts = _read(folder, CLIENTS_FILE, dict[str, Counts])
    keys: dict[str, KeystrokeCounts] = {}
    if (folder / KEYSTROKES_FILE).exists():
        keys = _read(folder, KEYSTROKES_FILE, dict[str, KeystrokeCounts])
    return {client: OwnScore(counts=own, keys=keys.get(client)) for client, own in counts.items()}


def _tuned(folder: Path, epochs: int) -> dict[str, OwnScore]:
    by_epochs = _read(folder, FINE_TUNED_FILE, dict[int, dict[str, OwnScore]])
    if epochs not in by_epochs:
        known = ", ".join(map(str, by_epochs))
        raise NoOwnFiguresError(f"{folder} was fine-tuned for {known} epochs, not for {epochs}")
    return by_epochs[epochs]


def _read(folder: Path, name: str, wanted: type[T]) -> T:
    try:
        return read_run_file(folder / name, wanted)
    except FileNotFoundError:
        raise NoOwnFiguresError(
            f"{folder} has no {name}: the run is not over, did not measure it, or keeps a "
            "guarantee, under which no figure of a single client is written"
        ) from None
