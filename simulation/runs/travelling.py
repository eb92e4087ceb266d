"""A run's folder on its way between machines: what changed in it since it was last sent.

A cluster's nodes need no shared disk. A run begins on its node with what the folder holds here, and
sends back what changes. A change is put here in the order in which a run writes: models and states,
the ledger, the pointers, the figures, and the final figures last. So a command that is killed while
it does so leaves what a run leaves that is killed, and the run goes on from there.
"""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from privacy.foundation.atomic_files import write_atomically
from simulation.figures.metrics import FILE_NAME
from simulation.runs.checkpoint import FINAL_FILE

_STORE = "store.sqlite"
_OF_STORE = (f"{_STORE}-wal", f"{_STORE}-shm")
_AFTER_LINKS = (FILE_NAME, FINAL_FILE)
Signature = tuple[int, ...]


class File(NamedTuple):
    """A file's permission bits and content."""

    mode: int
    content: bytes


class Changes(NamedTuple):
    """The difference between a folder now and before, by paths in it with ``/`` between parts.

    Attributes:
        folders: Permission bits of every folder.
        files: Files that are new or have changed.
        links: Every link, and what it points to.
        names: Every file; those here and not there go.
    """

    folders: dict[str, int]
    files: dict[str, File]
    links: dict[str, str]
    names: frozenset[str]


class Sender:
    """What was sent of a folder so far."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sent: dict[str, Signature] = {}

    def skip(self) -> None:
        """Take what lies there now for sent."""
        self._sent = {
            name: _signature(path)
            for name, path in _entries(self._folder)
            if path.is_file() and not path.is_symlink()
        }

    def changes(self) -> Changes:
        """Return what changed since the last call, at first everything; while nobody writes."""
        folders: dict[str, int] = {}
        files: dict[str, File] = {}
        links: dict[str, str] = {}
        found: dict[str, Signature] = {}
        for name, path in _entries(self._folder):
            if path.is_symlink():
                links[name] = str(path.readlink())
            elif path.is_dir():
                folders[name] = path.stat().st_mode & 0o777
            else:
                found[name] = _signature(path)
                if self._sent.get(name) != found[name]:
                    files[name] = File(path.stat().st_mode & 0o777, _content(path))
        self._sent = found
        return Changes(folders, files, links, frozenset(found))


def alone(path: Path) -> Changes:
    """Return a file as the only one of a folder.

    Raises:
        OSError: If it cannot be read.
    """
    file = File(path.stat().st_mode & 0o777, path.read_bytes())
    return Changes({}, {path.name: file}, {}, frozenset({path.name}))


def put(changes: Changes, folder: Path) -> None:
    """Bring a folder, made if it is missing, to what it was when the changes were taken.

    Raises:
        OSError: If the disk is full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, mode in changes.folders.items():
        (folder / name).mkdir(exist_ok=True)
        (folder / name).chmod(mode)
    last = [name for name in _AFTER_LINKS if name in changes.files]
    # The ledger is one of the first, but after the models that it names.
    first = sorted(changes.files.keys() - set(last), key=lambda name: (name == _STORE, name))
    for name in first:
        _write(folder / name, changes.files[name])
    for name, target in changes.links.items():
        _point(folder / name, target)
    for name in last:
        _write(folder / name, changes.files[name])
    _remove_others(changes, folder)


def _entries(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield what lies in a folder and below, a folder before what is in it."""
    for path in sorted(folder.rglob("*")) if folder.exists() else []:
        name = path.relative_to(folder).as_posix()
        if name not in _OF_STORE:
            yield name, path


def _signature(path: Path) -> Signature:
    """Return what differs after a file is written: files are replaced, or grow."""
    parts = [path, path.with_name(f"{path.name}-wal")] if path.name == _STORE else [path]
    stats = [part.stat() for part in parts if part.exists()]
    return tuple(number for one in stats for number in (one.st_ino, one.st_size, one.st_mtime_ns))


def _content(path: Path) -> bytes:
    """Return a file's bytes; a store's with what its write-ahead log holds."""
    if path.name != _STORE:
        return path.read_bytes()
    with closing(sqlite3.connect(path)) as store:
        return store.serialize()


def _write(path: Path, file: File) -> None:
    if path.name == _STORE:
        # The log of a store that was left in the middle would be read into the one that comes.
        fold_store(path.parent)
    write_atomically(path, file.content, file.mode)


def fold_store(folder: Path) -> None:
    """Put a store's write-ahead log into the store, where a killed run left one."""
    if (folder / _STORE).exists():
        with closing(sqlite3.connect(folder / _STORE)) as store:
            store.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _point(path: Path, target: str) -> None:
    if path.is_symlink() and str(path.readlink()) == target:
        return
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(path)


def _remove_others(changes: Changes, folder: Path) -> None:
    kept = {*changes.names, *changes.links, *changes.folders}
    for name, path in list(_entries(folder)):
        if name in kept or not os.path.lexists(path):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
