"""Let one process at a time serve a federation's folder, or change what that process reads."""

import contextlib
import fcntl
import os
from collections.abc import Iterator

from server.records.folder import ServerFolder


class AlreadyRunningError(Exception):
    """Raised when another process serves the same folder."""


@contextlib.contextmanager
def only_one(folder: ServerFolder) -> Iterator[None]:
    """Hold the folder's lock; the system lets go of it whenever and however the process ends.

    Raises:
        AlreadyRunningError: If another process holds it.
        OSError: If the folder cannot be written.
    """
    descriptor = os.open(folder.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunningError(
                f"a coordinator serves {folder.root}; stop it with `sotto-server drain`"
            ) from None
        yield
    finally:
        os.close(descriptor)
