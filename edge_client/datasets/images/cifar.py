"""CIFAR-10 and CIFAR-100: the official Python pickles, or JPEG sheets with ``labels.npz``.

60,000 images of 32x32 pixels, 10,000 of them to test; CIFAR-100 has 100 classes in 20 coarse ones.

References:
    Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_client.datasets.image_set import CoarseLabels, ImageSet, labelled
from edge_client.datasets.images.image_sheets import (
    LABELS_FILE,
    TEST_SHEETS,
    TRAIN_SHEETS,
    read_labels,
    read_sheets,
)
from edge_client.datasets.images.plain_pickle import read_plain_pickle
from edge_client.datasets.text_set import DatasetError

_PIXELS = 3 * 32 * 32
_LOSSY = "images were re-encoded as JPEG: compare figures with each other only"


class _Layout(NamedTuple):
    """The published form of one of the two sets: file names, and keys in the official files.

    ``name`` is that in the registry and of the folder with sheets, ``folder`` what the official
    archive unpacks to. ``coarse_count`` is 0 if there are no coarse classes.
    """

    name: str
    folder: str
    train: tuple[str, ...]
    test: str
    names: str
    label_key: bytes
    name_key: bytes
    class_count: int
    coarse_count: int = 0


_CIFAR10 = _Layout(
    name="cifar10",
    folder="cifar-10-batches-py",
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    names="batches.meta",
    label_key=b"labels",
    name_key=b"label_names",
    class_count=10,
)
_CIFAR100 = _Layout(
    name="cifar100",
    folder="cifar-100-python",
    train=("train",),
    test="test",
    names="meta",
    label_key=b"fine_labels",
    name_key=b"fine_label_names",
    class_count=100,
    coarse_count=20,
)


class _Part(NamedTuple):
    """The images of one part, their labels and, if there are any, their coarse labels."""

    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]
    coarse: NDArray[np.int64]


def load_cifar10(path: Path | None) -> ImageSet:
    """Load CIFAR-10 from ``path``: its folder, or a folder with that in it.

    Raises:
        DatasetError: If a file is missing, cut short, damaged, or is not what its name says.
    """
    return _load(_CIFAR10, path)


def load_cifar100(path: Path | None) -> ImageSet:
    """Load CIFAR-100, with its coarse labels, as ``load_cifar10``.

    Raises:
        DatasetError: As ``load_cifar10``.
    """
    return _load(_CIFAR100, path)


def _load(layout: _Layout, path: Path | None) -> ImageSet:
    if path is None:
        raise DatasetError(f"{layout.name} needs a path: give --data or set SOTTO_DATA")
    for folder in (path, path / layout.folder, path / layout.name):
        if (folder / layout.names).is_file():
            return _from_pickles(layout, folder)
        if (folder / LABELS_FILE).is_file():
            return _from_sheets(layout, folder)
    raise DatasetError(
        f"{layout.name}: no {layout.names} (official Python version, unpacked) and no "
        f"{LABELS_FILE} in {path} or its folders {layout.folder}, {layout.name}"
    )


def _from_pickles(layout: _Layout, folder: Path) -> ImageSet:
    meta = read_plain_pickle(folder / layout.names)
    train = [_unpickled(layout, folder / name) for name in layout.train]
    return _assemble(
        layout,
        folder,
        _Part(*(np.concatenate(arrays) for arrays in zip(*train, strict=True))),
        _unpickled(layout, folder / layout.test),
        names=_names(meta.get(layout.name_key), layout.class_count, folder),
        coarse_names=_names(meta.get(b"coarse_label_names", []), layout.coarse_count, folder),
    )


def _unpickled(layout: _Layout, file: Path) -> _Part:
    batch = read_plain_pickle(file)
    rows, labels = batch.get(b"data"), batch.get(layout.label_key)
    is_sound = isinstance(rows, np.ndarray) and rows.dtype == np.uint8 and rows.ndim == 2
    if not isinstance(rows, np.ndarray) or not is_sound or rows.shape[1] != _PIXELS:
        raise DatasetError(f"{file} must hold rows of {_PIXELS} bytes under 'data'")
    planes = rows.reshape(len(rows), 3, 32, 32)  # Red, green and blue one after the other.
    coarse = batch.get(b"coarse_labels") if layout.coarse_count else []
    return _Part(planes.transpose(0, 2, 3, 1), _numbers(labels, file), _numbers(coarse, file))


def _from_sheets(layout: _Layout, folder: Path) -> ImageSet:
    file = folder / LABELS_FILE
    names = ["train_labels", "test_labels", "label_names"]
    if layout.coarse_count:
        names += ["train_coarse_labels", "test_coarse_labels", "coarse_label_names"]
    train, test, class_names, *coarse = read_labels(file, *names)
    train_coarse, test_coarse, coarse_names = coarse or (np.empty(0, np.int64),) * 3
    return _assemble(
        layout,
        folder,
        _Part(
            read_sheets(folder / name for name in TRAIN_SHEETS),
            _numbers(train, file),
            _numbers(train_coarse, file),
        ),
        _Part(
            read_sheets(folder / name for name in TEST_SHEETS),
            _numbers(test, file),
            _numbers(test_coarse, file),
        ),
        names=_names(class_names.tolist(), layout.class_count, file),
        coarse_names=_names(coarse_names.tolist(), layout.coarse_count, file),
        notes=(_LOSSY,),
    )


def _assemble(
    layout: _Layout,
    source: Path,
    train: _Part,
    test: _Part,
    *,
    names: tuple[str, ...],
    coarse_names: tuple[str, ...],
    notes: tuple[str, ...] = (),
) -> ImageSet:
    coarse = None
    if layout.coarse_count:
        # Checked as labels are: one for each image, and in range.
        coarse_train, coarse_test = (
            labelled(part.pixels, part.coarse, layout.coarse_count, source).labels
            for part in (train, test)
        )
        coarse = CoarseLabels(coarse_train, coarse_test, coarse_names)
    return ImageSet(
        train=labelled(train.pixels, train.labels, layout.class_count, source),
        test=labelled(test.pixels, test.labels, layout.class_count, source),
        class_names=names,
        coarse=coarse,
        notes=notes,
    )


def _numbers(labels: object, file: Path) -> NDArray[np.int64]:
    whole = f"{file} must hold a list of whole numbers as labels"
    # Each item of a list is looked at first: lists of lists may make an array without end.
    if isinstance(labels, list) and not all(type(label) is int for label in labels):
        raise DatasetError(whole)
    try:
        numbers = np.asarray(labels if isinstance(labels, list | np.ndarray) else None)
    except OverflowError:
        raise DatasetError(whole) from None
    if numbers.size == 0:
        return np.empty(0, np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise DatasetError(whole)
    return numbers.astype(np.int64)


def _names(names: object, count: int, file: Path) -> tuple[str, ...]:
    listed: Sequence[object] = names if isinstance(names, list) else ()
    if len(listed) != count or not all(isinstance(name, bytes | str) for name in listed):
        raise DatasetError(f"{file} must hold {count} names of classes, got {len(listed)}")
    return tuple(_text(name) for name in listed)


def _text(name: object) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
