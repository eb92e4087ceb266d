"""The form of every image data set: labelled images to train on and to test on."""

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
    """Coarse labels, int64 ``(images,)``, and their names in order, where a set has two levels."""

    train: Tensor
    test: Tensor
    names: tuple[str, ...]


@dataclass(frozen=True)
class ImageSet:
    """One image data set; ``class_names`` are in order, and ``coarse`` is None for one level.

    The ``notes`` are what a reader of figures must know, one line each.
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
    """Return images, shape ``(images, height, width, channels)``, checked against their labels.

    Raises:
        DatasetError: If their numbers differ, or a label is not in [0, ``class_count``).
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
