"""Read pickles of plain values and NumPy arrays, and no others.

The official CIFAR files are pickles, and unpickling runs whatever a file names. Only the three
names that a stored array needs are looked up, and they are stand-ins: an array is made empty and
filled with the file's bytes, so a file cannot ask for more memory than it has.
"""

import io
import pickle
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_client.datasets.text_set import DatasetError

LARGEST_BYTES = 256 << 20

_MALFORMED = (
    pickle.UnpicklingError,
    AttributeError,
    EOFError,
    ImportError,
    IndexError,
    KeyError,
    MemoryError,
    OverflowError,
    TypeError,
    ValueError,
)


def read_plain_pickle(path: Path) -> dict[bytes, object]:
    """Return the dictionary in a pickle; strings of Python 2 are bytes.

    Raises:
        DatasetError: If it is unreadable, cut short, no such pickle, or names more than arrays.
    """
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise DatasetError(f"{path} must have at most {LARGEST_BYTES >> 20} MiB")
        content = path.read_bytes()
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror}") from None
    try:
        value = _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
    except _MALFORMED as error:
        raise DatasetError(f"{path} is no pickle of plain values and arrays: {error}") from None
    if not isinstance(value, dict):
        raise DatasetError(f"{path} must hold a dictionary, got {type(value).__name__}")
    return value


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        """Return the stand-in for a name of an array's pickle; refuse any other."""
        found = _STAND_INS.get((module, name))
        if found is None:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return found


def _empty_array(*_: object) -> NDArray[np.uint8]:
    """Stand for NumPy's ``_reconstruct``; type, shape and content come with the array's state."""
    return np.empty(0, dtype=np.uint8)


def _number_type(name: bytes | str, *_: object) -> np.dtype[np.generic]:
    """Stand for ``numpy.dtype``: of numbers alone, an array of objects would hold anything."""
    wanted = np.dtype(name.decode() if isinstance(name, bytes) else name)
    if wanted.kind not in "biuf":
        raise pickle.UnpicklingError(f"it holds an array of {wanted}")
    return wanted


_STAND_INS: dict[tuple[str, str], object] = {
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("numpy", "dtype"): _number_type,
    # Only ever an argument of _reconstruct: nothing that could be called.
    ("numpy", "ndarray"): "ndarray",
}
