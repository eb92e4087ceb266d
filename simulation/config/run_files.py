"""Read the JSON files that a run leaves in its folder; an error names the file."""

from pathlib import Path
from typing import TypeVar

import msgspec

from privacy.foundation.strict_json import read_json

T = TypeVar("T")


class RunFileError(ValueError):
    """Raised when a run's file is not what the run wrote; names the file."""


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
