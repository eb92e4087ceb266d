"""Write a folder's files durably, and put the folder where another may be.

A release is such a folder: it has its name when all of it is on the disk, and never before.
"""

import os
import shutil
from pathlib import Path

from models.vector.codec import Payload
from privacy.foundation.atomic_files import start_flush

FORMER = ".former"
"""Folder into which the one that is replaced moves, until it is deleted."""
_MODE = 0o600
_PIECE_BYTES = 1 << 20


def put_in_place(ready: Path, target: Path) -> None:
    """Rename a folder to where another may be, which goes; a crash in between can be repaired.

    The other moves into the one that is ready, which fails if that was renamed before: whoever
    comes late removes nothing.
    """
    if target.exists():
        shutil.rmtree(ready / FORMER, ignore_errors=True)
        target.rename(ready / FORMER)
    ready.rename(target)
    shutil.rmtree(target / FORMER, ignore_errors=True)


def write_flushed(folder: Path, contents: dict[str, Payload]) -> None:
    """Write new files; they are flushed after all are written, which one journal serves."""
    descriptors: list[int] = []
    try:
        for name, content in contents.items():
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptors.append(os.open(folder / name, flags, _MODE))
            _write_starting(descriptors[-1], memoryview(content).cast("B"))
        for descriptor in descriptors:
            os.fsync(descriptor)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _write_starting(descriptor: int, content: memoryview) -> None:
    """Write a new file's bytes; a large one is on its way to the disk while the rest is written."""
    written = 0
    while written < len(content):
        count = os.write(descriptor, content[written : written + _PIECE_BYTES])
        if len(content) > _PIECE_BYTES:
            start_flush(descriptor, written, count)
        written += count
