"""Deal images with two levels of classes by Pachinko allocation: coarse class, then fine class.

References:
    [FedTP] Li et al., arXiv:2211.01572, section IV-A: CIFAR-100 with Dir(0.3) over coarse and
        Dir(10) over fine classes.
    Reddi et al., "Adaptive Federated Optimization", ICLR 2021, arXiv:2003.00295, appendix F.
"""

import math
from collections import defaultdict

import numpy as np
import torch
from numpy.typing import NDArray

from simulation.population.deal_labels import Indices, Labels, Share, numpy_generator
from simulation.population.deal_users import PartitionError


def pachinko(
    labels: Labels,
    coarse: Labels,
    client_count: int,
    *,
    coarse_concentration: float,
    fine_concentration: float,
    generator: torch.Generator,
) -> list[Share]:
    """Deal training and test images together, the same number to each client.

    A client draws weights over the coarse classes that are left, and over the fine classes left in
    each, from Dirichlet distributions with the two concentrations. Then, image by image, it draws a
    coarse class, a fine class in it, and one of its images, without replacement; a class that runs
    out is taken away and the other weights normalised. An image stays training or test, so a
    client's test share is that of the data set on average only. Each of n clients gets N/n images
    of both parts together, rounded down.

    Raises:
        PartitionError: If there are fewer images than clients.
        ValueError: If a concentration is not positive and finite.
    """
    for name, value in (("coarse", coarse_concentration), ("fine", fine_concentration)):
        if not 0 < value < math.inf:
            raise ValueError(f"{name}_concentration must be > 0 and finite, got {value}")
    image_count = len(labels.train) + len(labels.test)
    if not 1 <= client_count <= image_count:
        raise PartitionError(f"client_count must be in [1, {image_count}], got {client_count}")
    drawn = numpy_generator(generator)
    left = _Left(labels, coarse, drawn)
    return [
        left.take(image_count // client_count, coarse_concentration, fine_concentration)
        for _ in range(client_count)
    ]


class _Left:
    """The images that no client has yet."""

    def __init__(self, labels: Labels, coarse: Labels, drawn: np.random.Generator) -> None:
        self._drawn = drawn
        self._train_count = len(labels.train)
        fine = np.concatenate([labels.train, labels.test])
        coarser = np.concatenate([coarse.train, coarse.test])
        # Shuffled once: taking the last of a class is then a draw without replacement.
        self._images: defaultdict[int, dict[int, list[int]]] = defaultdict(dict)
        for place in drawn.permutation(len(fine)).tolist():
            classes = self._images[int(coarser[place])]
            classes.setdefault(int(fine[place]), []).append(place)

    def take(self, size: int, coarse_concentration: float, fine_concentration: float) -> Share:
        """Draw one client's weights, and its images by them."""
        coarse = _Weights(sorted(self._images), coarse_concentration, self._drawn)
        fine = {
            group: _Weights(sorted(self._images[group]), fine_concentration, self._drawn)
            for group in coarse.classes
        }
        places = np.empty(size, dtype=np.int64)
        for number in range(size):
            group = coarse.draw()
            label = fine[group].draw()
            places[number] = self._images[group][label].pop()
            if not self._images[group][label]:
                del self._images[group][label]
                fine[group].remove(label)
            if not self._images[group]:
                del self._images[group]
                coarse.remove(group)
        return self._share(places)

    def _share(self, places: Indices) -> Share:
        is_train = places < self._train_count
        return Share(places[is_train], places[~is_train] - self._train_count)


class _Weights:
    """One client's weights over the classes that are left, in their order."""

    def __init__(
        self, classes: list[int], concentration: float, drawn: np.random.Generator
    ) -> None:
        self.classes = classes
        self._drawn = drawn
        self._weights = drawn.dirichlet([concentration] * len(classes)) if classes else np.empty(0)
        self._ends = self._running_total()

    def draw(self) -> int:
        """Return a class, drawn by its weight among those that are left."""
        place = int(np.searchsorted(self._ends, self._drawn.random() * self._ends[-1], "right"))
        return self.classes[min(place, len(self.classes) - 1)]

    def remove(self, label: int) -> None:
        place = self.classes.index(label)
        del self.classes[place]
        self._weights = np.delete(self._weights, place)
        self._ends = self._running_total()

    def _running_total(self) -> NDArray[np.float64]:
        """Return the ends of the classes' ranges; equal ones where all weights are zero."""
        is_empty = not self._weights.sum() > 0
        return np.cumsum(np.ones_like(self._weights) if is_empty else self._weights)
