"""Draw who got what: clients against classes as bubbles, or sizes as bars; a line for any noise."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simulation.figures.plots import write_figure
from simulation.population.partition_record import PartitionRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Points squared of the largest bubble, where classes and clients have room; less where they crowd.
_LARGEST_BUBBLE = 220.0
_ROOMY = 20
_NAMED_CLASSES = 20
_NOISE_COLOUR = "tab:red"


def plot_partition(record: PartitionRecord, path: Path) -> None:
    """Draw a partition and write it as PNG."""

    def draw(axes: "Axes") -> None:
        if record.classes:
            _draw_bubbles(axes, record)
        else:
            _draw_sizes(axes, record)
        if record.pixel_noise:
            _draw_noise(axes, record.pixel_noise)
        axes.set_xlabel("client")
        axes.locator_params(axis="x", integer=True)
        axes.set_title(f"{record.dataset}, {record.partition}, {len(record.clients)} clients")

    write_figure(path, draw)


def _draw_bubbles(axes: "Axes", record: PartitionRecord) -> None:
    """Draw a bubble for each class of each client; its area is the number of training images."""
    counts = np.array([client.train_counts for client in record.clients])
    clients, classes = np.nonzero(counts)
    held = counts[clients, classes]
    crowd = max(*counts.shape, _ROOMY) / _ROOMY
    axes.scatter(clients + 1, classes, s=_LARGEST_BUBBLE / crowd**2 * held / held.max(), alpha=0.7)
    axes.set_ylabel(f"class (largest bubble: {held.max()} training images)")
    if len(record.classes) <= _NAMED_CLASSES:
        axes.set_yticks(range(len(record.classes)), record.classes)


def _draw_noise(axes: "Axes", levels: Sequence[float]) -> None:
    right = axes.twinx()
    right.plot(range(1, len(levels) + 1), levels, color=_NOISE_COLOUR, marker=".")
    right.set_ylabel("noise of the camera, σ in pixel levels of 0 to 255", color=_NOISE_COLOUR)
    right.set_ylim(bottom=0)


def _draw_sizes(axes: "Axes", record: PartitionRecord) -> None:
    """Draw each client's size, largest first: to train on, and of its own to test on."""
    clients = sorted(record.clients, key=lambda client: -client.train_size)
    places = range(1, len(clients) + 1)
    train = [client.train_size for client in clients]
    axes.bar(places, train, width=1.0, label="to train on")
    axes.bar(
        places, [client.test_size for client in clients], width=1.0, bottom=train,
        label="of its own to test on",
    )  # fmt: skip
    axes.set_ylabel(record.unit)
