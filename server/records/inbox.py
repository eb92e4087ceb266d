"""Keep acknowledged updates on disk, sealed as they came, until their round closes.

A file is flushed, renamed and its folder flushed before a row in the store points to it. A file
without a row was never acknowledged and is deleted at the next start. Names hold the term in which
they were kept, so whoever deletes late leaves alone what a later coordinator acknowledged.
"""

import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

from privacy.foundation.atomic_files import sync_file, sync_folder
from server.machine.answers import Lease
from server.records.failpoints import UNARMED, Failpoint, Failpoints
from server.records.tenure import ALONE, Tenure


class Inbox:
    """The sealed updates of the open round."""

    def __init__(
        self, folder: Path, failpoints: Failpoints = UNARMED, tenure: Tenure = ALONE
    ) -> None:
        """Use a folder on the file system of the uploads; it is made, owner-only, if missing."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._failpoints = failpoints
        self._tenure = tenure

    @property
    def folder(self) -> Path:
        """Return where the files lie, owner-only."""
        return self._folder

    def path(self, blob: str) -> Path:
        """Return where a sealed update lies, by its name in the store."""
        return self._folder / blob

    def keep(self, partial: Path, lease: Lease, message_id: bytes) -> str:
        """Move a complete upload to its place, durably, and return its name for the store.

        Raises:
            OSError: If the disk is full; the upload stays where it was.
        """
        (blob,) = self.keep_all([(partial, lease, message_id)])
        if isinstance(blob, OSError):
            raise blob
        return blob

    def keep_all(self, uploads: Iterable[tuple[Path, Lease, bytes]]) -> list[str | OSError]:
        """Move complete uploads to their places, durably, as files of their message's identifiers.

        Returns:
            Each one's name for the store, or what kept it where it was.

        Raises:
            OSError: If the folder cannot be flushed; none of them may count.
        """
        blobs: list[str | OSError] = []
        folders: set[Path] = set()
        for partial, lease, message_id in uploads:
            attempt = _attempt_folder(lease.round_number, lease.attempt)
            update = f"{lease.slot:06d}-{lease.nonce.hex()}-{message_id.hex()}"
            blob = f"{attempt}/{self._tenure.named(update)}.sealed"
            try:
                folders.add(self._move(partial, self._folder / blob))
            except OSError as error:
                blobs.append(error)
            else:
                blobs.append(blob)
        for folder in folders:
            sync_folder(folder)
        for kept in blobs:
            if isinstance(kept, str):
                self._failpoints.reach(Failpoint.BLOB_RENAMED)
        return blobs

    def _move(self, partial: Path, target: Path) -> Path:
        sync_file(partial)
        if not target.parent.exists():
            target.parent.mkdir(mode=0o700, exist_ok=True)
            sync_folder(self._folder)
        partial.replace(target)
        return target.parent

    def clear(self, round_number: int, attempt: int) -> None:
        """Delete every sealed update of an attempt that ended."""
        shutil.rmtree(self._folder / _attempt_folder(round_number, attempt), ignore_errors=True)

    def clear_all_but(self, blobs: Collection[str]) -> int:
        """Delete every file that is not among these names; return how many there were.

        Those of a later term stay: the names were read before it began.
        """
        orphans = [
            path
            for path in self._folder.rglob("*")
            if path.is_file()
            and path.relative_to(self._folder).as_posix() not in blobs
            and not self._tenure.is_after(path.name)
        ]
        for path in orphans:
            path.unlink()
        for folder in self._folder.iterdir():
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        return len(orphans)


def _attempt_folder(round_number: int, attempt: int) -> str:
    return f"{round_number:06d}-{attempt:03d}"
