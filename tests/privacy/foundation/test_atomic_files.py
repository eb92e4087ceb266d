"""A file is old or new, whatever happens between."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from privacy.foundation.atomic_files import start_flush, write_atomically, write_chunks_atomically


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_content_replaces_content(tmp_path: Path) -> None:
    path = tmp_path / "state.json"

    write_atomically(path, b"old")
    write_atomically(path, bytearray(b"new"))

    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["state.json"]


@pytest.mark.parametrize("mode", [0o600, 0o644])
@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_the_mode_is_exact_whatever_the_umask(tmp_path: Path, mode: int, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "file", b"x", mode)
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


def test_pieces_are_counted(tmp_path: Path) -> None:
    pieces: list[bytes | memoryview] = [b"ab", memoryview(b"cde"), b""]

    written = write_chunks_atomically(tmp_path / "file", pieces)

    assert written == 5
    assert (tmp_path / "file").read_bytes() == b"abcde"


def test_large_pieces_start_for_the_disk_as_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[int, int]] = []

    def start(descriptor: int, offset: int, size: int) -> None:
        started.append((offset, size))
        start_flush(descriptor, offset, size)

    monkeypatch.setattr("privacy.foundation.atomic_files.start_flush", start)
    large = bytes(range(256)) * 1024

    write_chunks_atomically(tmp_path / "file", [b"head", large, large], flush=False)

    assert started == [(4, len(large)), (4 + len(large), len(large))]
    assert (tmp_path / "file").read_bytes() == b"head" + large + large


def test_a_source_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def pieces() -> Iterator[bytes]:
        yield b"half of the new"
        raise RuntimeError("source failed")

    with pytest.raises(RuntimeError, match="source failed"):
        write_chunks_atomically(path, pieces())
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(descriptor: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))

    write_atomically(tmp_path / "file", b"0123456789")

    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_bytes_reach_the_disk_before_the_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, rename = os.fsync, Path.replace

    def traced_fsync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        events.append("folder flushed" if is_folder else "file flushed")
        fsync(descriptor)

    def traced_rename(source: Path, target: Path) -> Path:
        events.append("renamed")
        return rename(source, target)

    monkeypatch.setattr(os, "fsync", traced_fsync)
    monkeypatch.setattr(Path, "replace", traced_rename)

    write_atomically(tmp_path / "file", b"x")

    assert events == ["file flushed", "renamed", "folder flushed"]


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as refused:
        write_atomically(tmp_path / "absent" / "file", b"x")

    # Not a temporary name that nobody gave.
    assert refused.value.filename == str(tmp_path / "absent")
