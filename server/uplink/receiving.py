"""Receive sealed updates onto disk, in pieces, from wherever they stopped.

A lease has at most one open upload. Its file is named after the lease and the sealed message, so a
device goes on where the file ends after a broken connection or a restart of the coordinator.
"""

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from privacy.foundation.atomic_files import BytesLike, start_flush
from protos.refusals import RefusalCode
from server.devices.refused_calls import RefusedError, disk_refusal
from server.records.threads import Threads

LARGEST_CHUNK_BYTES = 2 << 20
_SUFFIX = ".part"
_Write: TypeAlias = Callable[[BytesLike, int], None]


class _Upload:
    """One open upload; only the newest of its streams, which ``stream`` counts, may write."""

    def __init__(self, path: Path, message_id: bytes, total_bytes: int, held_bytes: int) -> None:
        self.path = path
        self.message_id = message_id
        self.total_bytes = total_bytes
        self.held_bytes = held_bytes
        self.stream = 0


class UploadDesk:
    """The files of the current round's uploads, in a folder that is made if missing."""

    def __init__(self, folder: Path, threads: Threads) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._threads = threads
        self._uploads: dict[bytes, _Upload] = {}
        # What an earlier process received, by the lease's nonce in hex.
        self._left: dict[str, Path] = {
            path.name.partition(".")[0]: path for path in folder.glob(f"*{_SUFFIX}")
        }

    def open(self, lease_nonce: bytes, message_id: bytes, total_bytes: int) -> int:
        """Start or resume a lease's one upload, replacing another message; return its held bytes.

        Raises:
            RefusedError: If the disk has no room.
        """
        path = self._folder / f"{lease_nonce.hex()}.{message_id.hex()}{_SUFFIX}"
        upload = self._uploads.get(lease_nonce)
        if upload is not None and upload.path == path:
            return upload.held_bytes
        former = self._left.pop(lease_nonce.hex(), None) if upload is None else upload.path
        if former is not None and former != path:
            former.unlink(missing_ok=True)
        with _disk_refusals():
            held_bytes = _touch(path)
        self._uploads[lease_nonce] = _Upload(path, message_id, total_bytes, held_bytes)
        return held_bytes

    async def receive(
        self,
        lease_nonce: bytes,
        offset: int,
        pieces: AsyncIterator[BytesLike],
        *,
        also: Callable[[BytesLike], None] | None = None,
    ) -> int:
        """Append pieces to an open upload and return how many bytes it then holds.

        ``also`` takes each piece too, in their order, in the thread that has written it.

        Raises:
            RefusedError: If the upload is not open, the offset is not its end, a piece is too large
                or too long, a newer stream took over, or the disk is full; earlier pieces stay.
        """
        upload = self._uploads.get(lease_nonce)
        if upload is None:
            raise RefusedError(RefusalCode.WRONG_OFFSET, "no upload is open; open one first")
        upload.stream += 1
        if offset != upload.held_bytes:
            raise RefusedError(
                RefusalCode.WRONG_OFFSET,
                f"offset must be {upload.held_bytes}, got {offset}; open the upload again",
            )
        descriptor = os.open(upload.path, os.O_WRONLY)
        try:
            write = _writer(descriptor, also)
            await self._append_all(upload, upload.stream, write, pieces)
        finally:
            os.close(descriptor)
        return upload.held_bytes

    async def _append_all(
        self, upload: _Upload, stream: int, write: _Write, pieces: AsyncIterator[BytesLike]
    ) -> None:
        """Write each piece in a thread while the next one is on its way."""
        writing: asyncio.Task[None] | None = None
        try:
            async for piece in pieces:
                if writing is not None:
                    await writing
                _check_piece(upload, stream, piece)
                writing = asyncio.create_task(self._append(upload, write, piece))
        finally:
            # A broken connection must not close the file under a write that still runs.
            if writing is not None:
                await asyncio.shield(writing)

    async def _append(self, upload: _Upload, write: _Write, piece: BytesLike) -> None:
        # Two streams may briefly write to one place: the same message, so the same bytes.
        start = upload.held_bytes
        with _disk_refusals():
            await self._threads.run(lambda: write(piece, start))
        upload.held_bytes = max(upload.held_bytes, start + len(piece))

    def beginning(self, lease_nonce: bytes, offset: int) -> tuple[Path, bytes] | None:
        """Return file and message of an upload that begins at this offset, else None."""
        upload = self._uploads.get(lease_nonce)
        if upload is None or upload.held_bytes or offset:
            return None
        return upload.path, upload.message_id

    def completed(self, lease_nonce: bytes, message_id: bytes) -> Path:
        """Return the file of an upload that has all its bytes.

        Raises:
            RefusedError: If this message is not open or not complete.
        """
        upload = self._uploads.get(lease_nonce)
        if upload is None or upload.message_id != message_id:
            raise RefusedError(RefusalCode.INCOMPLETE_UPLOAD, "this message was not uploaded")
        if upload.held_bytes != upload.total_bytes:
            raise RefusedError(
                RefusalCode.INCOMPLETE_UPLOAD,
                f"upload must hold {upload.total_bytes} bytes, got {upload.held_bytes}; "
                "open it again and send the rest",
            )
        return upload.path

    def forget(self, lease_nonce: bytes) -> None:
        """Drop what is held for a lease."""
        upload = self._uploads.pop(lease_nonce, None)
        if upload is not None:
            upload.path.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Drop every upload, of this process or an earlier one."""
        for nonce in list(self._uploads):
            self.forget(nonce)
        for path in self._left.values():
            path.unlink(missing_ok=True)
        self._left.clear()


def _touch(path: Path) -> int:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, stat.S_IRUSR | stat.S_IWUSR)
    try:
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _check_piece(upload: _Upload, stream: int, piece: BytesLike) -> None:
    if stream != upload.stream:
        raise RefusedError(RefusalCode.UPLOAD_SUPERSEDED, "a newer stream of this upload took over")
    if not 0 < len(piece) <= LARGEST_CHUNK_BYTES:
        raise RefusedError(
            RefusalCode.CHUNK_SIZE,
            f"a chunk must hold 1 to {LARGEST_CHUNK_BYTES} bytes, got {len(piece)}",
        )
    if upload.held_bytes + len(piece) > upload.total_bytes:
        raise RefusedError(
            RefusalCode.WRONG_SIZE,
            f"upload must end at {upload.total_bytes} bytes, got {upload.held_bytes + len(piece)}",
        )


def _writer(descriptor: int, also: Callable[[BytesLike], None] | None) -> _Write:
    def write(piece: BytesLike, offset: int) -> None:
        view, end = memoryview(piece), offset
        while view:
            written = os.pwrite(descriptor, view, end)
            view, end = view[written:], end + written
        start_flush(descriptor, offset, end - offset)
        if also is not None:
            also(piece)

    return write


@contextlib.contextmanager
def _disk_refusals() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise (disk_refusal(error) or error) from None
