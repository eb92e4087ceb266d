"""Replacement of files such that a crash leaves the old content or the new, never half.

The bytes go to a temporary file in the same folder, are flushed to the disk, and are renamed over
the target; then the folder itself is flushed, so that the new name survives a power cut too.
"""

import ctypes
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import cast

BytesLike = bytes | bytearray | memoryview
READABLE = 0o644
"""Permission bits of a file that every user of the machine may read."""
_LARGE_PIECE_BYTES = 256 << 10
_SYNC_FILE_RANGE_WRITE = 2


def write_atomically(path: Path, data: BytesLike, mode: int = 0o600, *, flush: bool = True) -> None:
    """Put ``data`` at ``path``, in an existing folder, durably and all at once.

    Args:
        path: Target; replaced if it exists.
        mode: Permission bits of the new file, set whatever the umask is; owner-only by default.
        flush: Whether to wait for the disk. Without it the file is old or new after the process
            was killed, but a power cut may take it: for what can be made again, or is flushed
            by somebody else.

    Raises:
        OSError: If the disk is full or the folder cannot be written; the old file is untouched
            and no temporary file stays behind.
    """
    write_chunks_atomically(path, (data,), mode, flush=flush)


def write_chunks_atomically(
    path: Path, chunks: Iterable[BytesLike], mode: int = 0o600, *, flush: bool = True
) -> int:
    """Do what `write_atomically` does with content that arrives in pieces; return its bytes.

    Large pieces start on their way to the disk while the next one is made. An error raised by
    ``chunks`` itself passes through, and leaves the old file as it was.
    """
    written = 0
    with _replacement(path, mode, flush=flush) as descriptor:
        for chunk in chunks:
            start, written = written, written + _write_all(descriptor, chunk)
            if written - start >= _LARGE_PIECE_BYTES:
                start_flush(descriptor, start, written - start)
    return written


def sync_folder(folder: Path) -> None:
    """Flush a folder's list of names to the disk, after a file in it was renamed or removed."""
    sync_file(folder, os.O_RDONLY | os.O_DIRECTORY)


def sync_file(path: Path, flags: int = os.O_RDONLY) -> None:
    """Flush a file's content to the disk; its name may need `sync_folder`."""
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def start_flush(descriptor: int, offset: int, size: int) -> None:
    """Set bytes that were just written on their way to the disk, and wait for nothing.

    A later flush of the file waits only for what is left. Where the system has no such call, that
    is everything. posix_fadvise(2) would do it too, and then wait for every processor's attention.
    """
    call = _sync_file_range()
    if call is not None:
        call(descriptor, offset, size, _SYNC_FILE_RANGE_WRITE)


@lru_cache(1)
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Return Linux's sync_file_range(2), which Python does not have, or None."""
    try:
        call = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError, TypeError):
        return None
    call.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return cast("Callable[[int, int, int, int], int]", call)


@contextmanager
def _replacement(path: Path, mode: int, *, flush: bool) -> Iterator[int]:
    """Open a temporary file beside ``path``; rename it over ``path`` if the block succeeds."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(temporary, flags, 0o600)
    except FileNotFoundError as error:
        # Nobody knows the temporary name: what is missing is the folder.
        raise FileNotFoundError(error.errno, error.strerror, str(path.parent)) from None
    try:
        try:
            yield descriptor
            os.fchmod(descriptor, mode)
            if flush:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if flush:
        sync_folder(path.parent)


def _write_all(descriptor: int, data: BytesLike) -> int:
    # One write may take less than it is given: Linux stops at 2 GiB.
    view = memoryview(data).cast("B")
    total = len(view)
    while view:
        view = view[os.write(descriptor, view) :]
    return total
