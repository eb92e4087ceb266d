"""Count the bytes a device has moved today, so that its owner's daily limit holds."""

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from privacy.atomic import write_atomically

_DAY_S = 86_400


class _Day(msgspec.Struct, frozen=True, kw_only=True):
    day: int
    bytes_moved: int


class Traffic:
    """Keep one number for one UTC day in a file.

    A file that cannot be read counts as an empty day: the limit protects a data plan, and a
    device that stopped for good over a broken counter would protect nothing.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """Count in ``path``, by ``clock`` in seconds since 1970 UTC."""
        self._path = path
        self._clock = clock

    @property
    def bytes_today(self) -> int:
        """Return the bytes moved since midnight UTC."""
        try:
            kept = msgspec.json.decode(self._path.read_bytes(), type=_Day)
        except (FileNotFoundError, msgspec.DecodeError):
            return 0
        return kept.bytes_moved if kept.day == self._today() else 0

    def add(self, byte_count: int) -> None:
        """Count ``byte_count`` more bytes."""
        moved = _Day(day=self._today(), bytes_moved=self.bytes_today + byte_count)
        write_atomically(self._path, msgspec.json.encode(moved))

    def _today(self) -> int:
        return int(self._clock() // _DAY_S)
