"""Tell whether a file is still the one that was read, without reading it again."""

from pathlib import Path

FileStamp = tuple[int, int, int]


def stamp_of(path: Path) -> FileStamp | None:
    """Return what changes whenever a file is replaced or rewritten; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
