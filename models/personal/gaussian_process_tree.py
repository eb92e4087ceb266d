"""Classify one client's examples by a tree of binary Gaussian processes (pFedGP).

Only the network that makes the features is shared. A client's classifier is made from its own
examples whenever it is needed, and has no parameters. Each fork of the tree is one process, classes
whose mean features lie close stay together as long as possible, and a class's probability is the
product along its path.

References:
    [pFedGP] Achituve et al., NeurIPS 2021, arXiv:2106.15482; and its authors' code.
"""

from collections import deque
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor

from models.personal.gaussian_process import (
    KnownPoints,
    draw_precisions,
    known_points,
    side_probabilities,
)
from models.settings.gaussian_process import GaussianProcessSettings

_START_COUNT = 50
_STARTS_SEED = 42
_LARGEST_ITERATION_COUNT = 300


@dataclass(frozen=True)
class Fork:
    """The classes on either side of one inner node of the tree.

    Attributes:
        left: Class numbers in rising order; holds the smallest of the node.
        right: Class numbers in rising order.
    """

    left: tuple[int, ...]
    right: tuple[int, ...]


def class_tree(features: Tensor, labels: Tensor) -> list[Fork]:
    """Split a client's classes in two, again and again, by 2-means over their mean features.

    Returns forks from the root down, level by level: one less than there are classes.
    """
    classes = torch.unique(labels)
    means = torch.stack([features[labels == c].double().mean(0) for c in classes])
    forks: list[Fork] = []
    nodes = deque([torch.arange(len(classes), device=classes.device)])
    while nodes:
        node = nodes.popleft()
        if len(node) < 2:
            continue
        is_left = two_means(means[node])
        sides = node[is_left], node[~is_left]
        left, right = (tuple(classes[side].tolist()) for side in sides)
        forks.append(Fork(left, right))
        nodes.extend(sides)
    return forks


def two_means(points: Tensor) -> Tensor:
    """Split two or more points, ``(points, embed)``, by 2-means (Lloyd, 50 starts).

    Returns whether each is on the side of the first one. Neither side is empty: where all points
    are one, the first stands alone.
    """
    starts = _starting_pairs(len(points)).to(points.device)
    centres = points[starts]  # (starts, 2, embed)
    sides = torch.zeros(len(starts), len(points), dtype=torch.bool, device=points.device)
    for _ in range(_LARGEST_ITERATION_COUNT):
        distances = torch.cdist(centres, points).square()  # (starts, 2, points)
        moved = distances[:, 1] < distances[:, 0]
        if bool((moved == sides).all()):
            break
        sides = moved
        centres = _side_means(points, sides, centres)
    distances = torch.cdist(centres, points).square()
    best = int(distances.amin(1).sum(1).argmin())
    is_left = sides[best] == sides[best, 0]
    if bool(is_left.all()):
        is_left[1:] = False
    return is_left


def held_out_half(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Draw half of each class, rounded down, to be predicted from the rest.

    Returns bool, shape ``(examples,)``: False everywhere if each class has one example.
    """
    is_held_out = torch.zeros_like(labels, dtype=torch.bool)
    for number in torch.unique(labels):
        places = torch.nonzero(labels == number).squeeze(1)
        order = torch.randperm(len(places), generator=generator, device=labels.device)
        is_held_out[places[order[: len(places) // 2]]] = True
    return is_held_out


def predictive_loss(
    features: Tensor, labels: Tensor, settings: GaussianProcessSettings, generator: torch.Generator
) -> Tensor:
    """Return the loss of half of a client's examples, predicted from the other half.

    Each fork adds the mean negative log-probability of the right side over the held-out examples
    that reach it. A fork that none reaches adds nothing, and a client with one class has no fork,
    so its gradient is zero.

    ``features`` of the whole client, ``(examples, embed)``, carry gradients; ``labels`` are class
    numbers, int64, ``(examples,)``. The generator, on their device, makes the halves and the Gibbs
    chains. The loss is float64 in nats, shape ``()``.

    Raises:
        ValueError: If features and labels do not fit, or features are not finite.
    """
    _check(features, labels)
    is_held_out = held_out_half(labels, generator)
    loss = features.double().sum() * 0  # So that a client with nothing to learn has a gradient: 0.
    for fork in class_tree(features.detach(), labels):
        is_left, reaches = _sides(fork, labels)
        asked = reaches & is_held_out
        if not bool(asked.any()):
            continue
        given = reaches & ~is_held_out
        known = known_points(features[given], is_left[given], settings)
        precisions = draw_precisions(
            known,
            chain_count=settings.chain_count,
            step_count=settings.step_count,
            generator=generator,
        )
        sides = side_probabilities(known, precisions, features[asked], settings)
        right_sides = (~is_left[asked]).long().unsqueeze(1)
        loss = loss - sides.gather(1, right_sides).log().mean()
    return loss


class GaussianProcessTree:
    """A tree of processes that predicts a client's classes from all of its examples."""

    def __init__(
        self,
        features: Tensor,
        labels: Tensor,
        settings: GaussianProcessSettings,
        generator: torch.Generator,
    ) -> None:
        """Build the tree and sample every process; arguments as for ``predictive_loss``."""
        _check(features, labels)
        self._settings = settings
        self._classes = torch.unique(labels)
        self._processes: list[tuple[Fork, KnownPoints, Tensor]] = []
        features = features.detach()
        for fork in class_tree(features, labels):
            is_left, reaches = _sides(fork, labels)
            known = known_points(features[reaches], is_left[reaches], settings)
            precisions = draw_precisions(
                known,
                chain_count=settings.evaluation_chain_count,
                step_count=settings.step_count,
                generator=generator,
            )
            self._processes.append((fork, known, precisions))

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: another process makes its tree anew from the examples."""
        raise TypeError("a tree of processes is a client's data and never leaves its process")

    @torch.no_grad()
    def class_probabilities(self, queries: Tensor, class_count: int) -> Tensor:
        """Return each class's probability, float64, ``(queries, class_count)``.

        It is the product of the sides' probabilities along the path to the class; a class that the
        client does not have is 0.
        """
        probabilities = torch.zeros(
            len(queries), class_count, dtype=torch.float64, device=queries.device
        )
        probabilities[:, self._classes] = 1
        for fork, known, precisions in self._processes:
            sides = side_probabilities(known, precisions, queries, self._settings)
            probabilities[:, list(fork.left)] *= sides[:, :1]
            probabilities[:, list(fork.right)] *= sides[:, 1:]
        return probabilities


def _sides(fork: Fork, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return which examples are on the left of a fork, and which reach it at all."""
    is_left = torch.isin(labels, torch.tensor(fork.left, device=labels.device))
    is_right = torch.isin(labels, torch.tensor(fork.right, device=labels.device))
    return is_left, is_left | is_right


def _starting_pairs(point_count: int) -> Tensor:
    """Return pairs of different places: every pair if there are few, else 50 drawn ones."""
    pairs = torch.combinations(torch.arange(point_count))
    if len(pairs) <= _START_COUNT:
        return pairs
    generator = torch.Generator().manual_seed(_STARTS_SEED)
    return pairs[torch.randperm(len(pairs), generator=generator)[:_START_COUNT]]


def _side_means(points: Tensor, sides: Tensor, centres: Tensor) -> Tensor:
    """Return the mean of both sides for every start; an empty side keeps its old one."""
    members = torch.stack([~sides, sides], 1).to(points.dtype)  # (starts, 2, points)
    counts = members.sum(2, keepdim=True)
    return torch.where(counts > 0, members @ points / counts.clamp(min=1), centres)


def _check(features: Tensor, labels: Tensor) -> None:
    if features.ndim != 2 or len(features) < 1 or labels.shape != (len(features),):
        raise ValueError(
            "features must have shape (examples, embed) and labels (examples,) with examples >= 1, "
            f"got {tuple(features.shape)} and {tuple(labels.shape)}"
        )
    if not bool(torch.isfinite(features.detach()).all()):
        raise ValueError("features must be finite; lower the learning rate")
