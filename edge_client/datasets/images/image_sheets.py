"""Read images that lie as tiles on JPEG sheets, with their labels in ``labels.npz``.

A sheet is 100 rows of 100 tiles of 32x32 pixels, row by row. JPEG loses a little: accuracies come
out close to, not equal to, those on the original pixels.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_client.datasets.text_set import DatasetError
from models.vector.archives import ArraysError, read_arrays

LABELS_FILE = "labels.npz"
TRAIN_SHEETS = tuple(f"data_batch_{number}.jpg" for number in range(1, 6))
TEST_SHEETS = ("test_batch.jpg",)

_TILES = 100
_TILE = 32
_SIDE = _TILES * _TILE


def read_sheets(paths: Iterable[Path]) -> NDArray[np.uint8]:
    """Return the tiles of several sheets, shape ``(images, 32, 32, 3)``.

    Raises:
        DatasetError: If Pillow is missing, or a sheet is missing, damaged or of another size.
    """
    return np.concatenate([_read_sheet(path) for path in paths])


def read_labels(path: Path, *names: str) -> list[NDArray[np.generic]]:
    """Return arrays of an ``.npz`` file by their names; nothing in it is unpickled.

    Raises:
        DatasetError: If the file is missing or damaged, or does not have an array.
    """
    try:
        return list(read_arrays(path, names).values())
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from None
    except ArraysError as error:
        raise DatasetError(f"{path}: {error}") from None


def _read_sheet(path: Path) -> NDArray[np.uint8]:
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise DatasetError("Pillow is missing; install sotto[image]") from None

    try:
        with Image.open(path) as sheet:
            if sheet.size != (_SIDE, _SIDE):
                raise DatasetError(
                    f"{path} must be {_SIDE}x{_SIDE} pixels, got {sheet.width}x{sheet.height}"
                )
            pixels = np.asarray(sheet.convert("RGB"))
    except FileNotFoundError:
        raise DatasetError(f"{path} is missing") from None
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        # Pillow says that a JPEG is cut short, or no JPEG, by any of these.
        raise DatasetError(f"{path} is damaged: {error}") from None
    tiles = pixels.reshape(_TILES, _TILE, _TILES, _TILE, 3).swapaxes(1, 2)
    return tiles.reshape(_TILES**2, _TILE, _TILE, 3)
