"""Draw what a hypernetwork has learnt of its clients: their embeddings in the plane, by t-SNE.

Clients with similar data should have similar embeddings. A picture can mislead, so a figure says
how often a client's nearest neighbour among the embeddings is of its own group, compared with the
initial embeddings and with a random neighbour.

References:
    van der Maaten and Hinton, "Visualizing Data using t-SNE", JMLR 2008.
    [FedTP] Li et al., TNNLS 2023, arXiv:2211.01572, Fig. 8.
"""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import torch
from torch import Tensor

from simulation.figures.plots import write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FEWEST_CLIENTS = 4
_LARGEST_PERPLEXITY = 30.0
_MARKERS = ("o", "s", "^")
_COLOUR_COUNT = 20


class Purity(msgspec.Struct, frozen=True, kw_only=True):
    """How often a client's nearest neighbour is of its own group, in [0, 1].

    Among the learnt embeddings, among the initial ones (``drawn``), and of a random neighbour.
    """

    learnt: float
    drawn: float
    chance: float


def purity_of(learnt: Tensor, drawn: Tensor, groups: Sequence[str]) -> Purity:
    """Return the purity of the groups for embeddings of shape ``(clients, embedding_size)``.

    Raises:
        ValueError: If there are fewer than two clients.
    """
    count = len(groups)
    if count < 2:
        raise ValueError(f"a nearest neighbour needs at least 2 clients, got {count}")
    pairs = sum(size * (size - 1) for size in Counter(groups).values())
    return Purity(
        learnt=_nearest_alike(learnt, groups),
        drawn=_nearest_alike(drawn, groups),
        chance=pairs / (count * (count - 1)),
    )


def project(embeddings: Tensor, *, seed: int) -> Tensor:
    """Return float32 embeddings ``(clients, embedding_size)`` as t-SNE points ``(clients, 2)``.

    Perplexity, about the number of neighbours by which a client is laid out, is a third of the
    other clients, at most 30. The seed fixes the picture.

    Raises:
        ValueError: If there are fewer than four clients, or scikit-learn is missing.
    """
    count = len(embeddings)
    if count < _FEWEST_CLIENTS:
        raise ValueError(f"t-SNE needs at least {_FEWEST_CLIENTS} clients, got {count}")
    try:
        from sklearn.manifold import TSNE
    except ModuleNotFoundError:
        raise ValueError("scikit-learn is missing; install sotto[image]") from None

    perplexity = min(_LARGEST_PERPLEXITY, (count - 1) / 3)
    # "exact" is quicker than the tree for some hundred points, and needs no approximation.
    layout = TSNE(
        perplexity=perplexity, init="pca", method="exact", random_state=seed
    ).fit_transform(embeddings.numpy())
    return torch.from_numpy(layout)


def write_map(
    points: Tensor, path: Path, *, groups: Sequence[str] | None, purity: Purity | None
) -> None:
    """Draw points, shape ``(clients, 2)``, coloured by group, beside their purity, as PNG."""

    def draw(plane: "Axes", *others: "Axes") -> None:
        _draw_points(plane, points, groups)
        for axes in others:
            if purity is not None:
                _draw_purity(axes, purity)

    write_figure(path, draw, panels=1 if purity is None else 2)


def _draw_points(plane: "Axes", points: Tensor, groups: Sequence[str] | None) -> None:
    if groups is None:
        plane.scatter(points[:, 0], points[:, 1], s=28)
    # By length first, so that class 10 stands behind class 9.
    for place, name in enumerate(sorted(set(groups or ()), key=lambda name: (len(name), name))):
        own = points[[group == name for group in groups or ()]]
        plane.scatter(
            own[:, 0],
            own[:, 1],
            s=28,
            color=_colour(place),
            # Twenty colours are told apart; more groups than that need other marks too.
            marker=_MARKERS[place // _COLOUR_COUNT % len(_MARKERS)],
            label=name,
        )
    plane.set_title("client embeddings by t-SNE")
    plane.set_xticks([])
    plane.set_yticks([])


def _draw_purity(axes: "Axes", purity: Purity) -> None:
    shares = {"learnt": purity.learnt, "as drawn": purity.drawn, "by chance": purity.chance}
    bars = axes.bar(list(shares), list(shares.values()), color=["C0", "C7", "C7"])
    axes.bar_label(bars, fmt="%.2f")
    axes.set_ylim(0, 1.05)
    axes.set_title("clients whose nearest neighbour is of their group")


def _colour(place: int) -> tuple[float, float, float, float]:
    from matplotlib import colormaps

    red, green, blue, alpha = colormaps["tab20"](place % _COLOUR_COUNT)
    return red, green, blue, alpha


def _nearest_alike(embeddings: Tensor, groups: Sequence[str]) -> float:
    distances = torch.cdist(embeddings, embeddings)
    distances.fill_diagonal_(math.inf)
    nearest: list[int] = distances.argmin(dim=1).tolist()
    alike = [groups[own] == groups[other] for own, other in enumerate(nearest)]
    return sum(alike) / len(alike)
