"""Deal labelled images to simulated clients so that their classes differ.

Training and test images are dealt with the same shares, so each client is tested on its own mixture
of classes. Every image goes to at most one client, and a generator state fixes the deal.

References:
    [FedTP] Li et al., arXiv:2211.01572, section IV-A: pathological and Dirichlet(0.3) clients.
    [pFedHN] Shamsian et al., "Personalized Federated Learning using Hypernetworks", ICML 2021,
        arXiv:2103.04628: classes in unequal shares.
    Li et al., "Federated Learning on Non-IID Data Silos", ICDE 2022, arXiv:2102.02079: the
        Dirichlet deal that stops filling a client at its equal share.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from simulation.population.deal_users import PartitionError

Indices = NDArray[np.int64]

# A class's shares are drawn from this range and normalised, so the largest is 1.5 of the smallest.
_SMALLEST_SHARE, _LARGEST_SHARE = 0.4, 0.6
_DIRICHLET_ATTEMPTS = 1000


class Share(NamedTuple):
    """The places of one client's images in the data set, int64, each of shape ``(images,)``."""

    train: Indices
    test: Indices


class Labels(NamedTuple):
    """The labels of a data set, in [0, class_count), int64, each of shape ``(images,)``."""

    train: Indices
    test: Indices
    class_count: int


def iid(labels: Labels, client_count: int, *, generator: torch.Generator) -> list[Share]:
    """Shuffle and deal all images in parts that differ by one at most.

    Raises:
        PartitionError: If there are fewer training images than clients.
    """
    _check_enough(labels, client_count)
    drawn = numpy_generator(generator)
    train, test = (
        np.array_split(drawn.permutation(len(part)), client_count)
        for part in (labels.train, labels.test)
    )
    return [Share(*own) for own in zip(train, test, strict=True)]


def pathological(
    labels: Labels, client_count: int, *, classes_per_client: int, generator: torch.Generator
) -> list[Share]:
    """Give each client images of a few classes, in unequal shares ([FedTP], [pFedHN]).

    Every class is cut into as many shares as clients must hold it, drawn from U(0.4, 0.6) and
    normalised over the class. Clients take turns: each takes a class at random among those with
    most shares left, and never one twice. Rounding down loses less than one image a share.
    [pFedHN]'s code discards one extra share of every class; here all are dealt, as in [FedTP].

    Raises:
        PartitionError: If the shares do not come out even, or the images do not suffice.
    """
    share_count, rest = divmod(classes_per_client * client_count, labels.class_count)
    if rest or not 1 <= classes_per_client <= labels.class_count:
        raise PartitionError(
            f"classes_per_client x client_count must be a multiple of {labels.class_count} "
            f"classes, and classes_per_client at most that, got {classes_per_client} x "
            f"{client_count}"
        )
    _check_enough(labels, client_count)
    drawn = numpy_generator(generator)
    shares = drawn.uniform(_SMALLEST_SHARE, _LARGEST_SHARE, size=(labels.class_count, share_count))
    shares /= shares.sum(axis=1, keepdims=True)
    holders = _holders(labels.class_count, share_count, client_count, classes_per_client, drawn)
    parts = []
    for part in (labels.train, labels.test):
        own: list[list[Indices]] = [[] for _ in range(client_count)]
        for label, clients in enumerate(holders):
            images = drawn.permutation(np.flatnonzero(part == label))
            sizes = np.floor(shares[label] * len(images)).astype(int)
            for client, piece in zip(clients, _cut(images, sizes), strict=True):
                own[client].append(piece)
        parts.append([np.concatenate(pieces) for pieces in own])
    return [Share(*own) for own in zip(*parts, strict=True)]


def dirichlet(
    labels: Labels,
    client_count: int,
    *,
    concentration: float,
    least_images: int = 10,
    generator: torch.Generator,
) -> list[Share]:
    """Deal each class by shares drawn from a Dirichlet distribution ([FedTP]).

    For each class p ~ Dir(α, ..., α) over the clients; smaller α is more uneven. A client that
    already holds its equal share N/n of the training images gets nothing more of the class, and p
    is normalised over the others. The test images follow the same p. The running total of p is
    rounded, so no image is lost. The deal is repeated until every client has ``least_images`` to
    train on and to test on.

    Raises:
        PartitionError: If a thousand deals leave a client with too few.
        ValueError: If ``concentration`` α is not positive and finite.
    """
    if not 0 < concentration < math.inf:
        raise ValueError(f"concentration must be > 0 and finite, got {concentration}")
    _check_enough(labels, client_count)
    drawn = numpy_generator(generator)
    for _ in range(_DIRICHLET_ATTEMPTS):
        deal = _dirichlet_deal(labels, client_count, concentration, drawn)
        if deal is not None and min(min(map(len, share)) for share in deal) >= least_images:
            return deal
    raise PartitionError(
        f"no deal of {_DIRICHLET_ATTEMPTS} gave each of {client_count} clients {least_images} "
        "images to train and to test on; lower data.client_count or data.least_images, or raise "
        "concentration"
    )


def by_coarse_label(
    labels: Labels, coarse: Labels, client_count: int, *, generator: torch.Generator
) -> list[Share]:
    """Give each coarse class to clients of its own, its fine classes dealt equally ([FedTP] t-SNE).

    With 20 coarse classes and 100 clients, coarse class j belongs to clients 5j to 5j + 4.

    Raises:
        PartitionError: If ``client_count`` is no multiple of the number of coarse classes.
    """
    together, rest = divmod(client_count, coarse.class_count)
    if rest or not together:
        raise PartitionError(
            f"client_count must be a multiple of {coarse.class_count} coarse classes, "
            f"got {client_count}"
        )
    drawn = numpy_generator(generator)
    parts = []
    for part, coarser in ((labels.train, coarse.train), (labels.test, coarse.test)):
        own: list[list[Indices]] = [[] for _ in range(client_count)]
        for group in range(coarse.class_count):
            for label in range(labels.class_count):
                images = drawn.permutation(np.flatnonzero((coarser == group) & (part == label)))
                for place, piece in enumerate(np.array_split(images, together)):
                    own[group * together + place].append(piece)
        parts.append([np.concatenate(pieces) for pieces in own])
    return [Share(*own) for own in zip(*parts, strict=True)]


def numpy_generator(generator: torch.Generator) -> np.random.Generator:
    """Return NumPy's generator, seeded by a draw: torch has no Dirichlet of its own generator."""
    return np.random.default_rng(int(torch.randint(2**63 - 1, (), generator=generator)))


def _holders(
    class_count: int,
    share_count: int,
    client_count: int,
    classes_per_client: int,
    drawn: np.random.Generator,
) -> list[list[int]]:
    """Return the clients that hold each class, one a share."""
    left = np.full(class_count, share_count)
    holders: list[list[int]] = [[] for _ in range(class_count)]
    for client in range(client_count):
        open_classes = np.ones(class_count, dtype=bool)
        for _ in range(classes_per_client):
            most = left[open_classes].max()
            label = int(drawn.choice(np.flatnonzero(open_classes & (left == most))))
            # The authors' code may give a class twice where the classes do not divide evenly.
            open_classes[label] = False
            left[label] -= 1
            holders[label].append(client)
    return holders


def _dirichlet_deal(
    labels: Labels, client_count: int, concentration: float, drawn: np.random.Generator
) -> list[Share] | None:
    """Return one deal; None if all of a class's shares fell to clients that are full."""
    equal_share = len(labels.train) / client_count
    held = np.zeros(client_count)
    train: list[list[Indices]] = [[] for _ in range(client_count)]
    test: list[list[Indices]] = [[] for _ in range(client_count)]
    for label in range(labels.class_count):
        shares = drawn.dirichlet([concentration] * client_count) * (held < equal_share)
        if not shares.sum() > 0:
            return None
        ends = np.cumsum(shares / shares.sum())[:-1]
        for part, own in ((labels.train, train), (labels.test, test)):
            images = drawn.permutation(np.flatnonzero(part == label))
            for client, piece in enumerate(np.split(images, (ends * len(images)).astype(int))):
                own[client].append(piece)
        held = np.array([sum(map(len, pieces)) for pieces in train])
    return [
        Share(np.concatenate(own_train), np.concatenate(own_test))
        for own_train, own_test in zip(train, test, strict=True)
    ]


def _cut(images: Indices, sizes: Sequence[int] | Indices) -> list[Indices]:
    """Return pieces of these sizes; what is left over is nobody's."""
    return np.split(images, np.cumsum(sizes))[: len(sizes)]


def _check_enough(labels: Labels, client_count: int) -> None:
    if client_count < 1:
        raise ValueError(f"client_count must be >= 1, got {client_count}")
    if len(labels.train) < client_count:
        raise PartitionError(
            f"training images must be >= {client_count}, one for each client, got "
            f"{len(labels.train)}; lower data.client_count"
        )
