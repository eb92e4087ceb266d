"""Read pickles of plain values and NumPy arrays, and no others.

The official CIFAR files are pickles, and unpickling runs whatever a file names. Only the three
names that a stored array needs are looked up, and they are stand-ins, of which an array is made
once its shape and type fit its bytes. Before anything is made, the file's instructions are gone
through: a short file may otherwise ask for a table of a thousand million places.
"""

import io
import math
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.datasets.text_set import DatasetError
from privacy.foundation.bounded_files import read_bounded

LARGEST_BYTES = 256 << 20

# The training file of CIFAR-100 has 350,000.
_MOST_INSTRUCTIONS = 500_000
# One array is made of two calls and two states.
_MOST_CALLS = 16
_PLAIN: frozenset[str] = frozenset(
    [
        "PROTO",
        "FRAME",
        "STOP",
        "MARK",
        "POP",
        "POP_MARK",
        "NONE",
        "NEWTRUE",
        "NEWFALSE",
        "INT",
        "LONG",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG1",
        "FLOAT",
        "BINFLOAT",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "BINBYTES",
        "SHORT_BINBYTES",
        "UNICODE",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "EMPTY_LIST",
        "LIST",
        "APPEND",
        "APPENDS",
        "EMPTY_TUPLE",
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "TUPLE3",
        "EMPTY_DICT",
        "DICT",
        "SETITEM",
        "SETITEMS",
        "PUT",
        "BINPUT",
        "LONG_BINPUT",
        "MEMOIZE",
        "GET",
        "BINGET",
        "LONG_BINGET",
        "GLOBAL",
        "STACK_GLOBAL",
    ]
)
_CALLS = frozenset(("REDUCE", "BUILD"))
_PLACED = frozenset(("PUT", "BINPUT", "LONG_BINPUT"))

_MALFORMED = (
    pickle.UnpicklingError,
    AttributeError,
    EOFError,
    ImportError,
    IndexError,
    KeyError,
    MemoryError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)


def read_plain_pickle(path: Path) -> dict[bytes, object]:
    """Return the dictionary in a pickle; strings of Python 2 are bytes.

    Raises:
        DatasetError: If it is unreadable, cut short, no such pickle, or names more than arrays.
    """
    try:
        content = read_bounded(path, LARGEST_BYTES)
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror}") from None
    try:
        _check_instructions(content)
        value = _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
    except _MALFORMED as error:
        raise DatasetError(f"{path} is no pickle of plain values and arrays: {error}") from None
    if not isinstance(value, dict):
        raise DatasetError(f"{path} must hold a dictionary, got {type(value).__name__}")
    return {
        key: held.array if isinstance(held, _StoredArray) else held for key, held in value.items()
    }


def _check_instructions(content: bytes) -> None:
    """Refuse a pickle that does more than plain values need; UnpicklingError says what."""
    calls = 0
    for number, (instruction, argument, _) in enumerate(pickletools.genops(content), start=1):
        calls += instruction.name in _CALLS
        if instruction.name not in _PLAIN and instruction.name not in _CALLS:
            raise pickle.UnpicklingError(f"it does {instruction.name}")
        # Places are given one by one, so one beyond their count only makes the table large.
        if instruction.name in _PLACED and isinstance(argument, int) and argument > number:
            raise pickle.UnpicklingError(f"it has no use for a place {argument}")
        if number > _MOST_INSTRUCTIONS or calls > _MOST_CALLS:
            raise pickle.UnpicklingError("it has more in it than a sheet of images")


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        """Return the stand-in for a name of an array's pickle; refuse any other."""
        found = _STAND_INS.get((module, name))
        if found is None:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return found


class _StoredType:
    """The type of a stored array: of numbers alone, an array of objects would hold anything."""

    __slots__ = ("dtype",)

    def __init__(self, name: bytes | str, *_: object) -> None:
        self.dtype = np.dtype(name.decode() if isinstance(name, bytes) else name)
        if self.dtype.kind not in "biuf":
            raise pickle.UnpicklingError(f"it holds an array of {self.dtype}")

    # Any: whatever a file gives for it.
    def __setstate__(self, state: Any) -> None:
        """Take the order of bytes, which is all that a number's type has beside its name."""
        if state[1] in (b">", ">"):
            self.dtype = self.dtype.newbyteorder(">")


class _StoredArray:
    """An array whose type, shape and content come after it."""

    __slots__ = ("array",)

    def __init__(self, *_: object) -> None:
        self.array: NDArray[np.generic] = np.empty(0, dtype=np.uint8)

    # Any: whatever a file gives for it.
    def __setstate__(self, state: Any) -> None:
        """Make the array of what NumPy stores: a version, shape, type, order of axes, content."""
        _, shape, kind, by_columns, content = state
        if not isinstance(kind, _StoredType) or not isinstance(content, bytes):
            raise pickle.UnpicklingError("it holds an array in another form")
        if not isinstance(shape, tuple) or min(shape, default=0) < 0:
            raise pickle.UnpicklingError("it holds an array in another form")
        if math.prod(shape) * kind.dtype.itemsize != len(content):
            raise pickle.UnpicklingError("it holds an array of another size than its content")
        flat = np.frombuffer(content, kind.dtype)
        self.array = flat.reshape(shape, order="F" if by_columns else "C")


_STAND_INS: dict[tuple[str, str], object] = {
    ("numpy.core.multiarray", "_reconstruct"): _StoredArray,
    ("numpy._core.multiarray", "_reconstruct"): _StoredArray,
    ("numpy", "dtype"): _StoredType,
    # Only ever an argument of _reconstruct: nothing that could be called.
    ("numpy", "ndarray"): "ndarray",
}
