"""Draw how accuracy is spread over a run's clients: a mean hides whom a model serves badly."""

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from models.tasks.metrics import Counts
from simulation.config.run_files import read_run_file
from simulation.figures.client_figures import WORST_SHARE
from simulation.figures.plots import write_figure
from simulation.runs.checkpoint import CLIENTS_FILE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = 20


class NoClientFiguresError(ValueError):
    """Raised when a run has no figures of single clients; the text says why."""


def client_accuracies(folder: Path) -> dict[str, float]:
    """Return each scored client's final accuracy on its own test examples.

    Raises:
        NoClientFiguresError: If the run wrote no such figures.
    """
    path = folder / CLIENTS_FILE
    if not path.exists():
        raise NoClientFiguresError(
            f"{folder} has no {CLIENTS_FILE}: the run is not over, its clients hold nothing out, "
            "or it keeps a guarantee, under which single clients' figures are not written"
        )
    counts = read_run_file(path, dict[str, Counts])
    return {client: own.accuracy for client, own in counts.items() if own.word_count}


def write_histogram(runs: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Draw how many clients of each run reach which accuracy, and write it as PNG.

    A full line stands at the mean over clients, a dotted one at the mean of the worst tenth.
    """

    def draw(axes: "Axes") -> None:
        edges = [place / _BINS for place in range(_BINS + 1)]
        for colour, (name, accuracies) in enumerate(runs.items()):
            own = sorted(accuracies.values())
            axes.hist(
                own, bins=edges, histtype="stepfilled", alpha=0.35, color=f"C{colour}", label=name
            )
            axes.axvline(statistics.fmean(own), color=f"C{colour}")
            worst = own[: max(1, int(len(own) * WORST_SHARE))]
            axes.axvline(statistics.fmean(worst), color=f"C{colour}", linestyle=":")
        axes.set_xlabel("accuracy on the client's own test examples")
        axes.set_ylabel("clients")

    write_figure(path, draw)
