"""Put everything a coordinator needs to go on into one owner-only archive, and take it out again.

The archive holds private keys and so makes its owner the coordinator. It may be made while the
coordinator runs: SQLite's online backup copies the store first, then come the releases that this
copy knows. At worst an update acknowledged meanwhile lacks its file, and expires with a reason at
the next start.

Restoring an old archive takes the run back to that round with the devices and invites of then, so
it starts paused. Devices saw the later models, which are made again: under modes ``central`` and
``local`` with other noise, which spends privacy twice. Under ``ftrl`` the same noise on other sums
would leave none in the models' difference, so ``noise.secret`` is in no archive and a tree of noise
that went back does not go on. Restore only what was lost, and keep backups fresh.
"""

import io
import os
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from privacy.foundation.atomic_files import sync_folder, write_chunks_atomically
from privacy.foundation.strict_json import LARGEST_RECORD_BYTES, decode_json
from server.config.store import StoreSettings
from server.records.folder import ServerFolder
from server.records.operator_switch import OperatorSwitch
from server.releases.files import ReleaseFolder

BACKUP_VERSION: Final = 1
_MANIFEST = "backup.json"
_PIECE_BYTES = 1 << 20
_TREE_KEY = "noise.secret"
_NOT_KEPT = frozenset({"uploads", "parts", "lock", "authority.former", _TREE_KEY})


class BackupError(RuntimeError):
    """Raised when a backup cannot be made or restored; the text says why."""


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The contents of an archive; ``created_at`` is in Unix seconds, ``best_round`` the best's."""

    format_version: int = BACKUP_VERSION
    run: str
    created_at: float
    last_round: int | None
    best_round: int | None


def create_backup(
    root: ServerFolder, settings: StoreSettings, target: Path, *, now: float
) -> BackupManifest:
    """Write an archive of a coordinator that may be running; ``now`` is in Unix seconds.

    Raises:
        BackupError: If the store is not an SQLite file inside the folder, or a file vanished.
        OSError: If the disk is full; an older archive stays as it was.
    """
    store = _store_name(root, settings)
    with tempfile.TemporaryDirectory(prefix=".backup-", dir=target.parent) as scratch:
        copy = Path(scratch) / "store.sqlite"
        with (
            closing(sqlite3.connect(root.root / store)) as source,
            closing(sqlite3.connect(copy)) as destination,
        ):
            source.backup(destination)
            rounds = _rounds(destination)
            run = _run(destination)
        best = ReleaseFolder(root.releases).pointed("best")
        manifest = BackupManifest(
            run=run,
            created_at=now,
            last_round=max(rounds, default=None),
            best_round=best if best in rounds else None,
        )
        archive = Path(scratch) / "archive.tar"
        with archive.open("wb") as stream:
            os.fchmod(stream.fileno(), 0o600)
            with tarfile.open(fileobj=stream, mode="w") as tar:
                _add_bytes(tar, _MANIFEST, msgspec.json.encode(manifest))
                tar.add(copy, arcname=store.as_posix())
                _add_files(tar, root, store, rounds, target)
            stream.flush()
            os.fsync(stream.fileno())
        archive.replace(target)
    sync_folder(target.parent)
    return manifest


def restore_backup(archive: Path, root: ServerFolder) -> BackupManifest:
    """Unpack an archive into a new or empty folder, and pause the run in it.

    Devices revoked or forgotten since are there again, so no round opens until the operator has
    seen to it. ``noise.secret``, which archives of earlier versions hold, stays behind.

    Raises:
        BackupError: If the folder is not empty or the file is no archive of this version.
        OSError: If the disk is full.
    """
    if root.root.exists() and any(root.root.iterdir()):
        raise BackupError(f"{root.root} is not empty; restore into a new folder")
    try:
        with tarfile.open(archive, mode="r:") as tar:
            manifest = _read_manifest(tar)
            root.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            root.root.chmod(0o700)
            OperatorSwitch(root.pause_mark).pause()
            for member in tar:
                if member.name not in (_MANIFEST, _TREE_KEY):
                    _extract(tar, member, root.root)
    except tarfile.TarError as error:
        raise BackupError(f"{archive} is no backup: {error}") from None
    except FileNotFoundError as error:
        raise BackupError(f"cannot read {error.filename}: no such file") from None
    folder = ReleaseFolder(root.releases)
    if manifest.last_round is not None:
        folder.point("latest", manifest.last_round)
    if manifest.best_round is not None:
        folder.point("best", manifest.best_round)
    return manifest


def _store_name(root: ServerFolder, settings: StoreSettings) -> PurePosixPath:
    path = settings.sqlite_path
    if path is None:
        raise BackupError(
            "a PostgreSQL store is backed up with pg_dump; copy the coordinator's folder beside "
            f"it, under mode ftrl without {_TREE_KEY}"
        )
    if not path.is_relative_to(root.root):
        raise BackupError(f"the store {path} must lie in {root.root} to be backed up with it")
    if not path.is_file():
        raise BackupError(f"there is no store {path}; make one with `sotto-server init`")
    return PurePosixPath(path.relative_to(root.root))


def _rounds(store: sqlite3.Connection) -> set[int]:
    rows = store.execute("SELECT round_number, published_at FROM releases").fetchall()
    if any(published_at is None for _, published_at in rows):
        raise BackupError("a release is being published this moment; try again")
    return {int(round_number) for round_number, _ in rows}


def _run(store: sqlite3.Connection) -> str:
    row = store.execute("SELECT run FROM runs").fetchone()
    if row is None:
        raise BackupError("the store has no run; there is nothing to back up")
    return str(row[0])


def _add_files(
    tar: tarfile.TarFile, root: ServerFolder, store: PurePosixPath, rounds: set[int], target: Path
) -> None:
    for path in _kept(root, store, rounds):
        if path == target.absolute():
            continue
        try:
            tar.add(path, arcname=path.relative_to(root.root).as_posix(), recursive=False)
        except FileNotFoundError:
            # An update that was aggregated or expired meanwhile; anything else must be there.
            if not path.is_relative_to(root.updates):
                raise BackupError(f"{path} vanished during the backup; try again") from None


def _kept(root: ServerFolder, store: PurePosixPath, rounds: set[int]) -> Iterator[Path]:
    store_files = {root.root / f"{store}{suffix}" for suffix in ("", "-wal", "-shm")}
    for path in sorted(root.root.rglob("*")):
        parts = path.relative_to(root.root).parts
        hidden = any(part.startswith(".") for part in parts)
        if hidden or parts[0] in _NOT_KEPT or path in store_files or path.is_symlink():
            continue
        of_release = path.is_relative_to(root.releases) and len(parts) > 2
        if of_release and int(parts[1]) not in rounds:
            continue
        if path.is_file():
            yield path


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def _read_manifest(tar: tarfile.TarFile) -> BackupManifest:
    first = tar.next()
    stream = None if first is None or first.name != _MANIFEST else tar.extractfile(first)
    if stream is None:
        raise BackupError("the archive does not begin with backup.json: it is no sotto backup")
    try:
        content = stream.read(LARGEST_RECORD_BYTES + 1)
        manifest = decode_json(content, BackupManifest, at_most=LARGEST_RECORD_BYTES)
    except msgspec.DecodeError as error:
        raise BackupError(f"backup.json cannot be read: {error}") from None
    if manifest.format_version != BACKUP_VERSION:
        raise BackupError(
            f"backup format_version must be {BACKUP_VERSION}, got {manifest.format_version}"
        )
    return manifest


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, root: Path) -> None:
    """Unpack one plain file, owner-only, at its name's place within the folder and nowhere else."""
    name = PurePosixPath(member.name)
    # A sparse one holds more than the archive: its holes would fill the disk.
    is_plain = member.isreg() and not member.issparse()
    stream = tar.extractfile(member) if is_plain else None
    if stream is None or name.is_absolute() or ".." in name.parts:
        raise BackupError(f"{member.name!r} has no place in a backup")
    target = root / name
    # One by one: what mkdir makes on the way to its target gets the default mode.
    for folder in reversed(target.relative_to(root).parents[:-1]):
        (root / folder).mkdir(mode=0o700, exist_ok=True)
    with stream:
        write_chunks_atomically(target, iter(lambda: stream.read(_PIECE_BYTES), b""))
