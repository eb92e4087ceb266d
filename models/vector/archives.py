"""Read zip archives and ``.npz`` files from outside without believing the sizes in them.

An archive's directory and an array's header are claims. Members must be stored or deflated, may
overlap nowhere they pay for, and hold together at most what a file of that size reasonably unpacks
to; an array's shape and type must give exactly the bytes that its member has. Nothing is unpickled.

References:
    APPNOTE.TXT, PKWARE (zip); NEP 1 (the ``.npy`` format).
"""

import io
import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

# NotImplementedError and RuntimeError: one flipped bit makes an archive of a version, a method or
# an encryption that zipfile knows nothing of. The last three come of names, places and sizes.
ZIP_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    struct.error,
    UnicodeDecodeError,
    OverflowError,
)
"""The errors that Python's ``zipfile`` raises if an archive is damaged."""

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_MOST_MEMBERS = 10_000
_ALWAYS_BYTES = 64 << 20
_LARGEST_RATIO = 32
_NUMBERS = "biuf"
_TEXT = "SU"
_PIECE_BYTES = 1 << 20
# A header is a Python dictionary in letters: these are of the tokens, the parser and its stack.
_NO_HEADER = (
    ValueError,
    TypeError,
    SyntaxError,
    tokenize.TokenError,
    MemoryError,
    RecursionError,
)


class ArraysError(ValueError):
    """Raised when a file holds no such arrays; the text says why, not which file it is."""


def largest_unpacked(packed_bytes: int) -> int:
    """Return how many bytes a file may unpack to: 64 MiB, and 32 times its own size."""
    return _ALWAYS_BYTES + _LARGEST_RATIO * packed_bytes


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an archive for reading, after checking what its directory claims.

    Raises:
        BadZipFile: If it has too many members, one of another method, or unpacks to too much;
            others of `ZIP_DAMAGE` as zipfile raises them.
        OSError: If it cannot be read.
    """
    with path.open("rb") as file, _opened(file) as archive:
        members = archive.infolist()
        if len(members) > _MOST_MEMBERS:
            raise zipfile.BadZipFile(f"it must have at most {_MOST_MEMBERS} members")
        if any(member.compress_type not in _METHODS for member in members):
            raise zipfile.BadZipFile("its members must be stored or deflated")
        largest = largest_unpacked(os.fstat(file.fileno()).st_size)
        if sum(member.file_size for member in members) > largest:
            raise zipfile.BadZipFile(f"it must unpack to at most {largest} bytes")
        if any(member.header_offset < 0 for member in members):
            raise zipfile.BadZipFile("a member's place is before the file")
        yield archive


def read_arrays(path: Path, names: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """Return arrays of numbers or text of an ``.npz`` file: those named, or all.

    Raises:
        ArraysError: If the file is damaged or none, lacks one that is named, or an array is none.
        OSError: If it cannot be read.
    """
    try:
        with open_zip(path) as archive:
            there = {name.removesuffix(".npy") for name in archive.namelist()}
            if names is not None and not there.issuperset(names):
                raise ArraysError(f"it must hold {' and '.join(names)}")
            wanted = sorted(there) if names is None else names
            return {name: _array(name, archive) for name in wanted}
    # KeyError: a member whose name does not end as an array's.
    except (*ZIP_DAMAGE, KeyError) as error:
        raise ArraysError(f"it is damaged: {error}") from None


def _opened(file: io.BufferedReader) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except ValueError as error:
        # A place before the file's beginning.
        raise zipfile.BadZipFile(str(error)) from None


def _array(name: str, archive: zipfile.ZipFile) -> NDArray[Any]:
    """Return a member's array, which is made only after its header fits the member's size."""
    member = archive.getinfo(f"{name}.npy")
    with archive.open(member) as stream:
        shape, by_columns, dtype = _header(name, stream)
        if dtype.kind not in _NUMBERS + _TEXT or not dtype.itemsize or not dtype.isnative:
            raise ArraysError(f"{name} must be numbers or text in this machine's form, got {dtype}")
        # Counted in Python's own numbers, which do not overflow.
        size = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or size != member.file_size - stream.tell():
            raise ArraysError(f"{name} must have as many bytes as its shape and type need")
        flat = np.empty(math.prod(shape), dtype)
        into = flat.view(np.uint8).data
        for start in range(0, size, _PIECE_BYTES):
            into[start : start + _PIECE_BYTES] = stream.read(min(_PIECE_BYTES, size - start))
    return flat.reshape(shape, order="F" if by_columns else "C")


def _header(name: str, stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        return read(stream)
    except _NO_HEADER as error:
        raise ArraysError(f"{name} is no array: {str(error)[:80]}") from None
