"""A reader of bytes from outside: what it may raise, and inputs to start from."""

import functools
import itertools
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Prepared(NamedTuple):
    """A reader at hand, and inputs that it takes."""

    read: Callable[[bytes], object]
    seeds: Sequence[bytes]


@dataclass(frozen=True)
class Target:
    """A reader, whatever bytes it is given: it returns, or raises one of ``refusals``.

    Attributes:
        name: Its name on the command line and in the table.
        refusals: The reader's own errors; any other is a defect.
        prepare: Makes it ready, with an empty folder of its own.
        hostile: Formats of ``tests.fuzz.hostile`` that it reads.
    """

    name: str
    refusals: tuple[type[Exception], ...]
    prepare: Callable[[Path], Prepared]
    hostile: tuple[str, ...] = ()


def of_bytes(read: Callable[[bytes], object], *seeds: bytes) -> Callable[[Path], Prepared]:
    """Return the preparation of a reader that takes the bytes themselves."""
    return lambda _folder: Prepared(read, seeds)


def of_file(
    read: Callable[[Path], object], *seeds: bytes, name: str = "input"
) -> Callable[[Path], Prepared]:
    """Return the preparation of a reader of a file, which may write others beside it."""

    def prepare(folder: Path) -> Prepared:
        return Prepared(functools.partial(_written, read, folder / name), seeds)

    return prepare


def in_new_folders(
    read: Callable[[Path, bytes], object], folder: Path
) -> Callable[[bytes], object]:
    """Return a reader that has an empty folder for each input."""
    numbers = itertools.count()

    def read_there(content: bytes) -> object:
        place = folder / str(next(numbers))
        place.mkdir(mode=0o700)
        try:
            return read(place, content)
        finally:
            shutil.rmtree(place)

    return read_there


def _written(read: Callable[[Path], object], path: Path, content: bytes) -> object:
    path.write_bytes(content)
    path.chmod(0o600)
    return read(path)
