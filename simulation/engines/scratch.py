"""Folders on a node for what is worked on there, such as the states that clients keep.

All of a user's on a machine lie in one place, and each is locked by the process that works in it.
The system lets go of a lock however its process ends. So whatever begins next on the node knows the
folders that nobody works in any more, and removes them; a command that had to kill work asks the
nodes to do it before it ends.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from server.records.lock import AlreadyRunningError, only_holder
from simulation.engines.cluster import ask_nodes

_LOCK = ".lock"
_EVERYTHING = "everything.held"  # Held while folders are made and removed.
_PRIVATE = 0o700
_WAIT_S = 10.0
_DYING_S = 60.0
_GLANCE_S = 0.1


@contextmanager
def node_scratch() -> Iterator[Path]:
    """Yield a folder on this node for work of this command, as ``scratch_folder`` does."""
    with scratch_folder(_command()) as folder:
        yield folder


def clear_nodes() -> None:
    """Have each node remove what killed work of this command left there.

    One that does not answer in time does it before it begins the next work.
    """
    import ray

    asked = ask_nodes(_clear)
    ray.wait(asked, num_returns=len(asked), timeout=_WAIT_S)


@contextmanager
def scratch_folder(owner: str) -> Iterator[Path]:
    """Remove the folders that nobody works in any more, and yield an empty one that goes after use.

    Raises:
        OSError: If the disk is full, or the place for such folders is another user's.
    """
    place = scratch_place()
    folder = place / f"{owner}-{os.urandom(8).hex()}"
    with ExitStack() as leaving:
        with _held(place):
            _remove_unowned(place)
            leaving.enter_context(only_holder(_lock_of(folder), f"{folder} is in use"))
        leaving.callback(_remove, folder)
        folder.mkdir()
        yield folder


def remove_unowned() -> set[str]:
    """Remove the folders that nobody works in any more, and return the owners of the others."""
    place = scratch_place()
    with _held(place):
        return _remove_unowned(place)


def scratch_place() -> Path:
    """Return the place of this user's folders, made if it is missing.

    Raises:
        OSError: If it is another user's, or others can look into it.
    """
    place = Path(tempfile.gettempdir()) / f"sotto-nodes-{os.getuid()}"
    place.mkdir(mode=_PRIVATE, exist_ok=True)
    found = place.lstat()  # A link has other bits.
    if found.st_uid != os.getuid() or found.st_mode & 0o777 != _PRIVATE:
        raise PermissionError(
            f"{place} must be a folder of this user's that others cannot open; remove it"
        )
    return place


@contextmanager
def _held(place: Path) -> Iterator[None]:
    """Wait until no other process makes or removes folders, and let none do so meanwhile."""
    descriptor = os.open(place / _EVERYTHING, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_unowned(place: Path) -> set[str]:
    owners = set()
    for lock in place.glob(f"*{_LOCK}"):
        folder = lock.with_suffix("")
        with suppress(AlreadyRunningError), only_holder(lock, f"{folder} is in use"):
            _remove(folder)
        if lock.exists():
            owners.add(folder.name.partition("-")[0])
    return owners


def _remove(folder: Path) -> None:
    """Remove a folder, and its lock after it; both stay for the next time if something is left."""
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        _lock_of(folder).unlink(missing_ok=True)


def _lock_of(folder: Path) -> Path:
    return folder.with_suffix(_LOCK)


def _command() -> str:
    import ray

    return str(ray.get_runtime_context().get_job_id())


# On the node.
def _clear() -> None:
    """Remove what nobody works in; wait for work of this command that is being killed."""
    deadline = time.monotonic() + _DYING_S
    while _command() in remove_unowned() and time.monotonic() < deadline:
        time.sleep(_GLANCE_S)
