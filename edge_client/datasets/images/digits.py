"""The embedded images: handwritten digits that ship inside scikit-learn (extra ``image``).

1,797 images of 8x8 pixels. Every fifth image of each digit, in the set's order, is for testing.

References:
    Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
        Repository, 1998; the copy in ``sklearn.datasets.load_digits``.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_client.datasets.image_set import ImageSet, labelled
from edge_client.datasets.text_set import DatasetError

_CLASSES = 10
_TEST_EVERY = 5
_INK = 16  # Levels of the original, 0 to 16; pixels here are 0 to 255.


def load(path: Path | None) -> ImageSet:
    """Load the digits; ``path`` is ignored.

    Raises:
        DatasetError: If scikit-learn is missing.
    """
    del path
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        raise DatasetError("scikit-learn is missing; install sotto[image]") from None

    digits = load_digits()
    pixels = np.rint(digits.images * (255 / _INK)).astype(np.uint8)[..., np.newaxis]
    labels = digits.target.astype(np.int64)
    source, is_test = Path("scikit-learn's digits"), _is_test(labels)
    return ImageSet(
        train=labelled(pixels[~is_test], labels[~is_test], _CLASSES, source),
        test=labelled(pixels[is_test], labels[is_test], _CLASSES, source),
        class_names=tuple(map(str, range(_CLASSES))),
        notes=("the images are the digits inside scikit-learn, 8x8 pixels",),
    )


def _is_test(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark the fifth, tenth, ... image of each digit; shape ``(images,)``."""
    marked = np.zeros(len(labels), dtype=bool)
    for digit in range(_CLASSES):
        marked[np.flatnonzero(labels == digit)[_TEST_EVERY - 1 :: _TEST_EVERY]] = True
    return marked
