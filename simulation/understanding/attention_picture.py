"""Lay over images what each client's own attention takes in of them.

One row an image, one column a client of a run. Each map is scaled to its own largest value, so
columns compare places, not strength.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from models.networks.attention_rollout import attention_maps
from models.networks.vit import Vit
from models.tasks.image_classification import LabelledImages
from simulation.population.population import Population
from simulation.understanding.finished_run import FinishedRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INCHES = 1.5
_TITLE_INCHES = 0.5
_DOTS_PER_INCH = 130
_HEAT = 0.45
"""Opacity of the map over its image."""


def picture_attention(
    runs: Sequence[FinishedRun],
    population: Population,
    path: Path,
    *,
    clients: Sequence[str],
    image_count: int,
) -> None:
    """Draw the attention of some clients over test images of theirs, and write it as PNG.

    The images are the clients' first ones in turns, at most ``image_count``, which is at least 1.
    ``population`` is the first run's.

    Raises:
        ValueError: If a client is not known or none has a test image, or a model is no ViT of such
            images.
    """
    shown = _images_of(population, clients, image_count)
    pixels = torch.stack([pixels for _, pixels in shown])
    maps = {
        client if len(runs) == 1 else f"{run.folder.folder.name}\n{client}": attention_maps(
            _vit_of(run, client, pixels), pixels
        )
        for run in runs
        for client in clients
    }
    write_attention(pixels, maps, path, titles=[title for title, _ in shown])


def write_attention(
    pixels: Tensor, maps: Mapping[str, Tensor], path: Path, *, titles: Sequence[str]
) -> None:
    """Draw maps, each of shape ``(images, rows, columns)``, over images, and write them as PNG.

    ``pixels`` are uint8, shape ``(images, height, width, channels)``, with 1 or 3 channels.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows, columns = len(pixels), 1 + len(maps)
    size = (_INCHES * columns, _INCHES * rows + _TITLE_INCHES)
    canvas = FigureCanvasAgg(Figure(figsize=size, layout="constrained"))
    grid = canvas.figure.subplots(rows, columns, squeeze=False)
    for row, title in enumerate(titles):
        _show(grid[row][0], pixels[row], None)
        grid[row][0].set_ylabel(title, fontsize=7)
        for column, (name, shares) in enumerate(maps.items(), start=1):
            _show(grid[row][column], pixels[row], shares[row])
            if row == 0:
                grid[row][column].set_title(name, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.figure.savefig(path, dpi=_DOTS_PER_INCH, format="png")


def _show(axes: "Axes", pixels: Tensor, shares: Tensor | None) -> None:
    height, width, channels = pixels.shape
    image = pixels.numpy() if channels == 3 else pixels[..., 0].numpy()
    axes.imshow(image, cmap="gray", vmin=0, vmax=255)
    axes.set_xticks([])
    axes.set_yticks([])
    if shares is not None:
        largest = float(shares.max())
        axes.imshow(
            shares.numpy(),
            cmap="jet",
            alpha=_HEAT,
            vmin=0,
            vmax=largest if largest > 0 else 1,
            interpolation="bilinear",
            extent=(-0.5, width - 0.5, height - 0.5, -0.5),
        )


def _images_of(
    population: Population, clients: Sequence[str], image_count: int
) -> list[tuple[str, Tensor]]:
    """Return titles and pixels of the clients' first test images, one a client in turns."""
    if image_count < 1:
        raise ValueError(f"there must be at least 1 image to show, got {image_count}")
    own = {}
    for client in clients:
        if client not in population.clients:
            known = ", ".join(list(population.clients)[:3])
            raise ValueError(f'there is no client "{client}"; names are {known}, ...')
        examples = population.own_test.get(client)
        if isinstance(examples, LabelledImages) and len(examples):
            own[client] = examples
    turns = [
        (f"{client}: class {int(examples.labels[place])}", examples.pixels[place])
        for place in range(max(map(len, own.values()), default=0))
        for client, examples in own.items()
        if place < len(examples)
    ]
    if not turns:
        raise ValueError(f"none of {', '.join(clients)} holds out a test image")
    return turns[:image_count]


def _vit_of(run: FinishedRun, client: str, pixels: Tensor) -> Vit:
    network = run.network_of(client)
    if not isinstance(network, Vit):
        raise ValueError(
            f'attention over images needs model.family = "vit", got "{type(network).__name__}"'
        )
    if network.pixels.shape != pixels.shape[1:]:
        raise ValueError(
            f"{run.folder.folder} reads images of shape {network.pixels.shape}, those of the first "
            f"run have {tuple(pixels.shape[1:])}"
        )
    return network
