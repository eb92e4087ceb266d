"""Let one process at a time serve a federation's folder, or change what that process reads."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from server.records.folder import ServerFolder


class AlreadyRunningError(Exception):
    """Raised when another process serves the same folder."""


def only_one(folder: ServerFolder) -> contextlib.AbstractContextManager[None]:
    """Hold the folder's lock; the system lets go of it whenever and however the process ends.

    Raises:
        AlreadyRunningError: If another process holds it.
        OSError: If the folder cannot be written.
    """
    return only_holder(
        folder.lock, f"a coordinator serves {folder.root}; stop it with `sotto-server drain`"
    )


@contextlib.contextmanager
def only_holder(path: Path, otherwise: str) -> Iterator[None]:
    """Hold the lock of a file, which is made if missing, on this machine's own file system.

    Raises:
        AlreadyRunningError: With the text ``otherwise``, if another process holds it.
        OSError: If the file cannot be made.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunningError(otherwise) from None
        yield
    finally:
        os.close(descriptor)
