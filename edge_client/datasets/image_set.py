"""The form of every image data set: labelled images to train on and to test on.

A data set is one file with a ``load`` function and one line in `edge_client.datasets.registry`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edge_client.datasets.text_set import DatasetError
from models.tasks.image_classification import LabelledImages


@dataclass(frozen=True)
class CoarseLabels:
    """The coarser class of every image, where a data set has two levels.

    Attributes:
        train: Those of the training images, int64, shape ``(images,)``.
        test: Those of the test images, int64, shape ``(images,)``.
        names: Coarse classes in order of their numbers.
    """

    train: Tensor
    test: Tensor
    names: tuple[str, ...]


@dataclass(frozen=True)
class ImageSet:
    """One image data set.

    Attributes:
        train: Images to train on.
        test: Images that are scored and never trained on.
        class_names: Classes in order of their numbers.
        coarse: Coarser classes; None where there is one level.
        notes: Notes that a reader of figures must know, one line each.
    """

    train: LabelledImages
    test: LabelledImages
    class_names: tuple[str, ...]
    coarse: CoarseLabels | None = None
    notes: tuple[str, ...] = ()


ImageLoader = Callable[[Path | None], ImageSet]


def labelled(
    pixels: NDArray[np.uint8], labels: NDArray[np.int64], class_count: int, source: Path
) -> LabelledImages:
    """Return images with their labels, checked against each other.

    Args:
        pixels: Shape ``(images, height, width, channels)``.
        labels: Shape ``(images,)``.
        class_count: Labels must be below it.

    Raises:
        DatasetError: If their numbers differ, or a label is out of range.
    """
    if len(pixels) != len(labels):
        raise DatasetError(
            f"{source} must have a label for each image, got {len(labels)} labels for "
            f"{len(pixels)} images"
        )
    if len(labels) and not (labels.min() >= 0 and labels.max() < class_count):
        raise DatasetError(
            f"labels of {source} must be in [0, {class_count}), got {labels.min()} to "
            f"{labels.max()}"
        )
    # Copied: both may be views of read-only memory.
    return LabelledImages(
        torch.from_numpy(np.array(pixels, dtype=np.uint8)),
        torch.from_numpy(np.array(labels, dtype=np.int64)),
    )
