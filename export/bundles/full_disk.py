"""Tell a full disk from other failures, and say which disk it is and what to do."""

import contextlib
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class FullDiskError(OSError):
    """Raised when a disk, or a quota on it, has no room for what is to be written."""


@contextlib.contextmanager
def naming_the_disk(folder: Path) -> Iterator[None]:
    """Let a full disk inside the block be told in one line that says what to do.

    Args:
        folder: An existing folder on the disk that is written.

    Raises:
        FullDiskError: If the disk has no room; the block leaves what was there before.
        OSError: What else the block raises.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        free_bytes = shutil.disk_usage(folder).free
        raise FullDiskError(
            f"No space left on the disk of {folder} ({free_bytes >> 20} MiB free): no file is "
            "left half; make room and run the same again"
        ) from None
