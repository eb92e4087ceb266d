"""Draw what a hypernetwork has learnt of its clients: their embeddings in the plane, by t-SNE.

Clients with data alike should have embeddings alike. A picture can mislead, so the same is told in
one number besides: how often a client's nearest neighbour, among the embeddings themselves and not
in the picture, is of its own group; beside it stand the same for the embeddings that the clients
started from, and what a random neighbour would give.

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

    Attributes:
        learnt: Among the learnt embeddings.
        drawn: Among those that the clients started from.
        chance: That of a neighbour drawn at random.
    """

    learnt: float
    drawn: float
    chance: float


def purity_of(learnt: Tensor, drawn: Tensor, groups: Sequence[str]) -> Purity:
    """Return how well nearest neighbours tell groups.

    Args:
        learnt: Shape ``(clients, embedding_size)``.
        drawn: As ``learnt``.

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
    """Return the embeddings in the plane, by t-SNE.

    Perplexity is a third of the other clients, at most 30: each client is laid out by about so
    many neighbours, and there must be more clients than that.

    Args:
        embeddings: Float32, shape ``(clients, embedding_size)``.
        seed: The same picture for the same seed.

    Returns:
        Shape ``(clients, 2)``.

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
    """Draw clients in the plane, coloured by group, with their purity beside; write it as PNG.

    Args:
        points: Shape ``(clients, 2)``.
        groups: One a client; None where clients have none.
        purity: The names of the groups; None where there are none.
    """

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
    """Return the share of clients whose nearest neighbour, by distance, is of their group."""
    distances = torch.cdist(embeddings, embeddings)
    distances.fill_diagonal_(math.inf)
    nearest: list[int] = distances.argmin(dim=1).tolist()
    alike = [groups[own] == groups[other] for own, other in enumerate(nearest)]
    return sum(alike) / len(alike)
