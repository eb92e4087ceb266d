"""Read and keep the JSON files of a run in its folder; an error names the file."""

from pathlib import Path
from typing import TypeVar

import msgspec

from privacy.foundation.atomic_files import READABLE, write_atomically
from privacy.foundation.strict_json import read_json

T = TypeVar("T")


class RunFileError(ValueError):
    """Raised when a run's file is not what the run wrote, or is another run's; names the file."""


def read_run_file(path: Path, wanted: type[T]) -> T:
    """Return what stands in a run's JSON file.

    Raises:
        RunFileError: If it is damaged, or was changed.
        OSError: If it cannot be read.
    """
    try:
        return read_json(path, wanted)
    except msgspec.DecodeError as error:
        raise RunFileError(f"{path} is not as its run wrote it: {error}") from None


def take_up(path: Path, computes: bytes, *, otherwise: str) -> None:
    """Record what the work in a folder computes, JSON; RunFileError if it holds other work.

    ``otherwise`` says which work that is.
    """
    record = msgspec.json.format(computes)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, record, mode=READABLE)
    elif path.read_bytes() != record:
        raise RunFileError(
            f"{path.parent} holds {otherwise}; give another --out, or remove the folder"
        )
