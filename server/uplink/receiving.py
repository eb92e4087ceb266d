"""Receive sealed updates onto disk, in pieces, from wherever they stopped.

A lease has at most one open upload, and an upload one stream. Its file is named after the lease
and the sealed message, so a device goes on where the file ends after a broken connection or a
restart of the coordinator. A stream ends, and with it its descriptor, when another takes over, when
its upload is replaced or dropped, and when its next piece does not come.
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
from server.devices.paced_call import PIECE_S, PacedCall
from server.devices.refused_calls import RefusedError, shortage_refusal
from server.records.threads import Threads

LARGEST_CHUNK_BYTES = 2 << 20
_SUFFIX = ".part"
# A piece that comes while the one before is written is a second of the same upload in memory. With
# so many in line for the threads that write, it would only wait there.
_AHEAD_BELOW = 16
_REPLACED = "another message of this lease took over"
_TAKEN_OVER = "a newer stream of this upload took over"
_Write: TypeAlias = Callable[[BytesLike, int], None]


class _Upload:
    """One open upload; only the newest of its streams, which is ``stream``, may write."""

    def __init__(self, path: Path, message_id: bytes, total_bytes: int, held_bytes: int) -> None:
        self.path = path
        self.message_id = message_id
        self.total_bytes = total_bytes
        self.held_bytes = held_bytes
        self.stream: PacedCall | None = None

    def end_stream(self, code: RefusalCode, reason: str | None = None) -> None:
        """End the stream that writes to it, if there is one."""
        former, self.stream = self.stream, None
        if former is not None:
            former.end(RefusedError(code, reason))


class UploadDesk:
    """The files of the current round's uploads, in a folder that is made if missing.

    ``received_bytes`` counts what was written, over all uploads of this process.
    """

    def __init__(self, folder: Path, threads: Threads, *, piece_s: float = PIECE_S) -> None:
        """Use a folder; each piece of a stream must come within ``piece_s`` seconds."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._threads = threads
        self._piece_s = piece_s
        self._uploads: dict[bytes, _Upload] = {}
        self.received_bytes = 0
        self._being_written = 0
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
        if upload is not None:
            upload.end_stream(RefusalCode.UPLOAD_SUPERSEDED, _REPLACED)
        if former is not None and former != path:
            former.unlink(missing_ok=True)
        with _shortages_refused():
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
            RefusedError: If the upload is not open, the offset is not its end, a piece is too
                large, too long or too late, a newer stream or message took over, the lease has
                ended, or the disk is full; earlier pieces stay.
        """
        upload = self._uploads.get(lease_nonce)
        if upload is None:
            raise RefusedError(RefusalCode.WRONG_OFFSET, "no upload is open; open one first")
        upload.end_stream(RefusalCode.UPLOAD_SUPERSEDED, _TAKEN_OVER)
        if offset != upload.held_bytes:
            raise RefusedError(
                RefusalCode.WRONG_OFFSET,
                f"offset must be {upload.held_bytes}, got {offset}; open the upload again",
            )
        stream = upload.stream = PacedCall(self._piece_s)
        async with stream:
            try:
                await self._append_all(upload, stream, pieces, also)
            finally:
                if upload.stream is stream:
                    upload.stream = None
        return upload.held_bytes

    async def _append_all(
        self,
        upload: _Upload,
        stream: PacedCall,
        pieces: AsyncIterator[BytesLike],
        also: Callable[[BytesLike], None] | None,
    ) -> None:
        """Write each piece in a thread while, as a rule, the next one is on its way."""
        with _shortages_refused():
            descriptor = os.open(upload.path, os.O_WRONLY)
        write = _writer(descriptor, also)
        writing: asyncio.Task[None] | None = None
        try:
            async for piece in pieces:
                # Shielded: a call that ends must not end a write that still runs in its thread.
                if writing is not None:
                    await asyncio.shield(writing)
                _check_piece(upload, stream, piece)
                stream.moved()
                writing = self._start_append(upload, write, piece)
                # The next may come in 45 s.
                del piece
                if self._being_written >= _AHEAD_BELOW:
                    await asyncio.shield(writing)
            if writing is not None:
                await asyncio.shield(writing)
        finally:
            if writing is None or writing.done():
                os.close(descriptor)
            else:
                writing.add_done_callback(lambda done: _close_after(done, descriptor))

    def _start_append(
        self, upload: _Upload, write: _Write, piece: BytesLike
    ) -> "asyncio.Task[None]":
        def written(_: "asyncio.Task[None]") -> None:
            self._being_written -= 1

        self._being_written += 1
        writing = asyncio.create_task(self._append(upload, write, piece))
        writing.add_done_callback(written)
        return writing

    async def _append(self, upload: _Upload, write: _Write, piece: BytesLike) -> None:
        # Two streams may briefly write to one place: the same message, so the same bytes.
        start = upload.held_bytes
        with _shortages_refused():
            await self._threads.run(lambda: write(piece, start))
        upload.held_bytes = max(upload.held_bytes, start + len(piece))
        self.received_bytes += len(piece)

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
        """Drop what is held for a lease, and end its stream."""
        upload = self._uploads.pop(lease_nonce, None)
        if upload is not None:
            upload.end_stream(RefusalCode.LATE)
            upload.path.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Drop every upload, of this process or an earlier one."""
        for nonce in list(self._uploads):
            self.forget(nonce)
        for path in self._left.values():
            path.unlink(missing_ok=True)
        self._left.clear()


def _close_after(writing: asyncio.Task[None], descriptor: int) -> None:
    """Close a file whose stream ended before its last write; what became of that nobody asks."""
    os.close(descriptor)
    if not writing.cancelled():
        writing.exception()


def _touch(path: Path) -> int:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, stat.S_IRUSR | stat.S_IWUSR)
    try:
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _check_piece(upload: _Upload, stream: PacedCall, piece: BytesLike) -> None:
    if upload.stream is not stream:
        # Its end is on its way; until then nothing of it is written.
        raise RefusedError(RefusalCode.UPLOAD_SUPERSEDED, _TAKEN_OVER)
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
def _shortages_refused() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise (shortage_refusal(error) or error) from None
