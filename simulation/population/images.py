"""Deal an image data set to clients, each with test images of the same mixture of classes."""

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import torch
from torch import Tensor

from edge_client.datasets.image_set import ImageSet
from edge_client.datasets.registry import load_images
from models.tasks.image_classification import LabelledImages
from simulation.config.data import DataSettings
from simulation.config.simulation import SimulationConfig
from simulation.population.deal_labels import (
    Indices,
    Labels,
    Share,
    by_coarse_label,
    dirichlet,
    iid,
    pathological,
)
from simulation.population.pachinko import pachinko
from simulation.population.partition_record import ClientRecord, PartitionRecord
from simulation.population.pixel_noise import noise_level, with_pixel_noise
from simulation.population.population import Population, PopulationError, client_name

_LEAST_IMAGES = 10
_FINE_CONCENTRATION = 10.0


def build_image_population(config: SimulationConfig, path: Path | None) -> Population:
    """Load the configuration's images and deal them; the embedded set needs no path.

    A client that gets no image to train on is left out; one that gets none to test on trains and is
    not scored. Notes say how many there are.

    Raises:
        DatasetError: If the data set cannot be loaded.
        PartitionError: If there are too few images to deal as asked.
        PopulationError: If coarse classes are asked for and there are none.
    """
    images, data = load_images(config.data.dataset, path), config.data
    generator = torch.Generator().manual_seed(data.seed)
    shares = _deal(images, data, generator)
    noise = [noise_level(place, len(shares), data.pixel_noise) for place in range(len(shares))]
    taken = [
        (
            (share, level),
            _own(images.train, share.train, level, generator),
            _own(images.test, share.test, level, generator),
        )
        for share, level in zip(shares, noise, strict=True)
    ]
    trained = [entry for entry in taken if len(entry[1])]
    named = {client_name(number): entry for number, entry in enumerate(trained, start=1)}
    return Population(
        clients={name: train for name, (_, train, _) in named.items()},
        own_test={name: test for name, (_, _, test) in named.items() if len(test)},
        held_out={},
        notes=[*images.notes, *_notes(shares)],
        partition=_record(data, images, {name: dealt for name, (dealt, _, _) in named.items()}),
    )


def _deal(images: ImageSet, data: DataSettings, generator: torch.Generator) -> list[Share]:
    kept = [_kept(part.labels, data.image_share, generator) for part in (images.train, images.test)]
    dealt = _deal_kept(images, data, kept, generator)
    return [Share(kept[0][share.train], kept[1][share.test]) for share in dealt]


def _kept(labels: Tensor, share: float, generator: torch.Generator) -> Indices:
    """Return places of a share of each class's images, rounded up, in their order."""
    if share == 1:
        return np.arange(len(labels))
    drawn = torch.randperm(len(labels), generator=generator)
    places = [
        own[: math.ceil(share * len(own))]
        for label in sorted(set(labels.tolist()))
        for own in (drawn[labels[drawn] == label],)
    ]
    return torch.cat(places).sort().values.numpy()


def _deal_kept(
    images: ImageSet, data: DataSettings, kept: Sequence[Indices], generator: torch.Generator
) -> list[Share]:
    class_count = len(images.class_names)
    labels = _labels(images.train.labels, images.test.labels, class_count, kept)
    # The settings see to it that there is a number of clients.
    count = data.client_count or 1
    match data.partition:
        case "iid":
            return iid(labels, count, generator=generator)
        case "pathological":
            return pathological(
                labels, count, classes_per_client=data.classes_per_client or 1, generator=generator
            )
        case "dirichlet-labels":
            return dirichlet(
                labels,
                count,
                concentration=data.concentration or 1.0,
                least_images=data.least_images or _LEAST_IMAGES,
                generator=generator,
            )
        case "coarse-labels":
            coarse = _coarse(images, data, kept)
            return by_coarse_label(labels, coarse, count, generator=generator)
        case "pachinko":
            return pachinko(
                labels,
                _coarse(images, data, kept),
                count,
                coarse_concentration=data.concentration or 1.0,
                fine_concentration=data.fine_concentration or _FINE_CONCENTRATION,
                generator=generator,
            )
        case _:
            raise PopulationError(f"images cannot be dealt by partition {data.partition}")


def _coarse(images: ImageSet, data: DataSettings, kept: Sequence[Indices]) -> Labels:
    if images.coarse is None:
        raise PopulationError(
            f"partition {data.partition} needs coarse classes, and data set {data.dataset} has "
            "none; use cifar100, or another partition"
        )
    return _labels(images.coarse.train, images.coarse.test, len(images.coarse.names), kept)


def _labels(train: Tensor, test: Tensor, class_count: int, kept: Sequence[Indices]) -> Labels:
    return Labels(train.numpy()[kept[0]], test.numpy()[kept[1]], class_count)


def _own(
    images: LabelledImages,
    places: Indices,
    level: float,
    generator: torch.Generator,
) -> LabelledImages:
    return with_pixel_noise(images[torch.from_numpy(places)], level, generator=generator)


def _notes(shares: Sequence[Share]) -> list[str]:
    untrained = sum(not len(share.train) for share in shares)
    unscored = sum(bool(len(share.train)) and not len(share.test) for share in shares)
    notes = []
    if untrained:
        notes.append(f"{untrained} clients without an image to train on were left out")
    if unscored:
        notes.append(f"{unscored} clients have no image to test on: they train and are not scored")
    return notes


def _record(
    data: DataSettings, images: ImageSet, dealt: dict[str, tuple[Share, float]]
) -> PartitionRecord:
    """Return who got what; ``dealt`` has each client's places and the noise of its camera."""
    class_count = len(images.class_names)

    def counts(labels: Tensor, places: Indices) -> list[int]:
        return labels[torch.from_numpy(places)].bincount(minlength=class_count).tolist()

    clients = tuple(
        ClientRecord(
            name=name,
            train_size=len(share.train),
            test_size=len(share.test),
            train_counts=tuple(counts(images.train.labels, share.train)),
            test_counts=tuple(counts(images.test.labels, share.test)),
            train=tuple(share.train.tolist()),
            test=tuple(share.test.tolist()),
            pixel_noise=level if data.pixel_noise else msgspec.UNSET,
        )
        for name, (share, level) in dealt.items()
    )
    return PartitionRecord(
        dataset=data.dataset,
        partition=data.partition,
        seed=data.seed,
        unit="images",
        classes=images.class_names,
        coarse=_coarse_names(images),
        clients=clients,
    )


def _coarse_names(images: ImageSet) -> tuple[str, ...] | msgspec.UnsetType:
    """Return each class's coarse class, if there are two levels; "" for a class not trained on."""
    if images.coarse is None:
        return msgspec.UNSET
    numbers = dict(zip(images.train.labels.tolist(), images.coarse.train.tolist(), strict=True))
    names = {label: images.coarse.names[number] for label, number in numbers.items()}
    return tuple(names.get(label, "") for label in range(len(images.class_names)))
