"""Classify images: CIFAR, handwritten digits, or a person's own labelled pictures.

Images are trained on as they are, without augmentation, and normalised by the network.

References:
    [FedTP] Li et al., arXiv:2211.01572, section IV-A.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from models.networks.registry import Network, image_network
from models.plan.plan import TrainingSettings
from models.tasks.metrics import Counts
from models.tasks.scoring import count_hits
from models.tasks.unusable_examples import UnusableExamplesError


@dataclass(frozen=True)
class LabelledImages:
    """One person's images, or a batch of them.

    Attributes:
        pixels: Uint8, shape ``(images, height, width, channels)``.
        labels: Classes, int64 in [0, classes), shape ``(images,)``.
    """

    pixels: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, places: Tensor | slice) -> "LabelledImages":
        return LabelledImages(self.pixels[places], self.labels[places])


class ImageClassification:
    """Learning from labelled images; a client may have one image, or images of one class."""

    def example_count(self, examples: LabelledImages) -> int:
        """Return the number of images."""
        return len(examples)

    def check(self, examples: LabelledImages, network: Network) -> None:
        """Check that there is an image, and that images and labels fit the network."""
        if not len(examples.labels) or not len(examples.pixels):
            raise UnusableExamplesError("there must be at least 1 image to train on, got 0")
        _check_images(examples, network)

    def batches(
        self,
        examples: LabelledImages,
        training: TrainingSettings,
        network: Network,
        generator: torch.Generator,
    ) -> Iterator[LabelledImages]:
        """Yield every image once in a drawn order, in batches of near-equal size.

        No batch holds one image alone unless the person has only one or ``batch_size`` is 1: a
        batch norm learns nothing from it.
        """
        for places in batch_places(len(examples), training.batch_size, generator):
            yield examples[places]

    def loss(
        self, network: Network, batch: LabelledImages, state: Tensor | None
    ) -> tuple[Tensor, int, Tensor | None]:
        """Return the mean cross-entropy in nats, the number of images, and None."""
        features, labels = self.features(network, batch)
        logits = image_network(network).head(features)
        return functional.cross_entropy(logits.float(), labels), len(batch), None

    def features(self, network: Network, batch: LabelledImages) -> tuple[Tensor, Tensor]:
        """See ``FeatureTask``."""
        network = image_network(network)
        device = network.head.bias.device
        return network.features(batch.pixels.to(device)), batch.labels.to(device)

    @torch.no_grad()
    def evaluate(
        self, network: Network, users: Sequence[LabelledImages], *, batch_size: int = 64
    ) -> Counts:
        """Score every image once, in float32, batch norms by their running statistics."""
        network.eval()
        counts = Counts()
        for user in users:
            for batch in self.scored_batches(network, user, batch_size=batch_size):
                features, labels = self.features(network, batch)
                counts += self.count(image_network(network).head(features), labels)
        return counts

    def targets(self, examples: LabelledImages) -> Tensor:
        """Return the labels."""
        return examples.labels

    def scored_batches(
        self, network: Network, examples: LabelledImages, *, batch_size: int
    ) -> Iterator[LabelledImages]:
        """Yield every image once, in order."""
        _check_images(examples, network)
        for first in range(0, len(examples), batch_size):
            yield examples[first : first + batch_size]

    def count(self, logits: Tensor, targets: Tensor) -> Counts:
        """Count hits among all classes."""
        return count_hits(logits, targets)


def batch_places(
    image_count: int, batch_size: int, generator: torch.Generator
) -> tuple[Tensor, ...]:
    """Return the images of each batch of one pass, in drawn order; sizes differ by at most 1."""
    order = torch.randperm(image_count, generator=generator)
    return order.tensor_split(-(-image_count // batch_size))


def _check_images(images: LabelledImages, network: Network) -> None:
    network = image_network(network)
    shape, class_count = network.pixels.shape, network.head.out_features
    pixels, labels = images.pixels, images.labels
    if pixels.dtype is not torch.uint8 or pixels.shape != (len(labels), *shape):
        raise UnusableExamplesError(
            f"images must be uint8 of shape ({len(labels)}, {', '.join(map(str, shape))}), one a "
            f"label, got {pixels.dtype} of shape {tuple(pixels.shape)}"
        )
    if labels.dtype is not torch.int64 or labels.ndim != 1:
        raise UnusableExamplesError(
            f"labels must be int64 of shape (images,), got {labels.dtype} of shape "
            f"{tuple(labels.shape)}"
        )
    if len(labels) and not (int(labels.min()) >= 0 and int(labels.max()) < class_count):
        raise UnusableExamplesError(
            f"labels must be in [0, {class_count}); class_count of the model must cover them"
        )
