"""A full disk told from other failures, with its name and what to do."""

import contextlib
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class FullDiskError(OSError):
    """Raised when a disk, or a quota on it, has no room for what is to be written."""


def is_full(error: OSError) -> bool:
    """Return whether a call failed because the disk, or a quota on it, has no room."""
    return isinstance(error, FullDiskError) or error.errno in _NO_ROOM


@contextlib.contextmanager
def naming_the_disk(
    folder: Path, *, again: str = "the same again: no file is left half"
) -> Iterator[None]:
    """Turn a full disk inside the block into one line that says what to do.

    ``folder`` exists on that disk; ``again`` is what to run once there is room, and what is true
    until then.

    Raises:
        FullDiskError: If the disk has no room; the block leaves what was there before.
        OSError: If the block fails otherwise.
    """
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        free_bytes = shutil.disk_usage(folder).free
        raise FullDiskError(
            f"the disk of {folder} is full ({free_bytes >> 20} MiB free); make room and run {again}"
        ) from None
