"""Copy a bundle and its people into a serving folder: first aside, then under a version's name."""

import contextlib
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from export.serve.folder.folder import ServingError, ServingFolder
from privacy.foundation.atomic_files import sync_file, sync_folder

INCOMING = "incoming-"
"""Prefix of a copy's name until it gets a version's name."""


@contextlib.contextmanager
def copied(
    folder: ServingFolder,
    bundle: Path,
    people: Sequence[Path],
    *,
    check: Callable[[Path], object],
) -> Iterator[Path]:
    """Copy a bundle, once ``check`` accepts it, and folders of personal files beside the versions.

    Any copy left at the end is removed.

    Raises:
        ServingError: If a people's folder holds anything but files, or two hold the same.
        ValueError: The errors of ``check``.
    """
    check(bundle)
    incoming = folder.bundles / f"{INCOMING}{secrets.token_hex(8)}"
    folder.bundles.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        if bundle.is_dir():
            shutil.copytree(bundle, incoming, symlinks=True)
        else:
            shutil.copyfile(bundle, incoming)
        folder.people(incoming.name).mkdir(mode=0o700, parents=True)
        for one in people:
            _copy_people(folder.people(incoming.name), one)
        yield incoming
    finally:
        _remove(incoming)
        _remove(folder.people(incoming.name))


def _copy_people(target: Path, people: Path) -> None:
    """Copy the personal files of a folder."""
    if not people.is_dir():
        raise ServingError(f"{people} must be a folder of personal files, CLIENT.zip")
    for path in people.iterdir():
        if path.is_dir():
            raise ServingError(f"{people} must hold personal files alone, got folder {path.name}")
        if (target / path.name).exists():
            raise ServingError(f"{path.name} must be in one folder of people, got two; remove one")
        shutil.copyfile(path, target / path.name)


def flush(folder: ServingFolder, incoming: Path) -> None:
    """Make the copy the owner's alone and bring it to the disk, which takes its time."""
    for copy in (folder.people(incoming.name), incoming):
        for path in (*(copy.iterdir() if copy.is_dir() else ()), copy):
            path.chmod(0o700 if path.is_dir() else 0o600)
            sync_file(path)


def keep(folder: ServingFolder, incoming: Path, version: str) -> None:
    """Give the copy its version's name, flushed to the disk: at once, if it was before."""
    moved = (
        (folder.people(incoming.name), folder.people(version)),
        (incoming, folder.bundles / version),
    )
    flush(folder, incoming)
    for source, target in moved:
        if target.exists():
            _remove(target.rename(target.with_name(f"gone-{secrets.token_hex(8)}")))
        source.rename(target)
        sync_folder(target.parent)


def remove_all_but(folder: ServingFolder, versions: set[str]) -> None:
    """Remove the bundles and people of all other versions.

    Each folder is renamed first: half a folder would look as if people had been taken out of it.
    """
    for path in (*folder.bundles.iterdir(), *folder.all_people.iterdir()):
        if path.name not in versions:
            _remove(path.rename(path.with_name(f"gone-{secrets.token_hex(8)}")))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
