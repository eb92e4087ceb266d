"""Tell a full disk from other failures, and say which disk it is and what to do."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from server.records.store import StoreFullError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class DiskFullError(Exception):
    """Raised when the coordinator stops because its disk has no room; nothing is lost."""


def is_full(error: OSError) -> bool:
    """Return whether a call failed because the disk, or a quota on it, has no room."""
    return error.errno in _NO_ROOM


@contextmanager
def naming_the_disk(folder: Path) -> Iterator[None]:
    """Turn a full disk inside the block into one line for the operator.

    Args:
        folder: The federation's folder.

    Raises:
        DiskFullError: If the disk or the store has no room.
    """
    try:
        yield
    except StoreFullError:
        raise DiskFullError(_text(folder)) from None
    except OSError as error:
        if not is_full(error):
            raise
        raise DiskFullError(_text(folder)) from None


def _text(folder: Path) -> str:
    free_bytes = shutil.disk_usage(folder).free
    return (
        f"the disk of {folder} is full ({free_bytes >> 20} MiB free); make room and run "
        f"`sotto-server run {folder}` again: it goes on with the round, and every update that "
        "was acknowledged is kept"
    )
