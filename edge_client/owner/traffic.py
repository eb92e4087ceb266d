"""Count the bytes a device has moved today, so that its owner's daily limit holds."""

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from privacy.foundation.atomic_files import write_atomically
from privacy.foundation.strict_json import LARGEST_RECORD_BYTES, read_json

_DAY_S = 86_400


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of one day, which is counted from 1970 UTC."""

    day: int
    bytes_down: int = 0
    bytes_up: int = 0

    @property
    def bytes_moved(self) -> int:
        """Return the bytes of both directions."""
        return self.bytes_down + self.bytes_up


class Traffic:
    """A file with the numbers of one UTC day; an unreadable one counts as an empty day.

    The limit protects a data plan, which a device stopped for good by a broken counter would not.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """Count in ``path``, by ``clock`` in seconds since 1970 UTC."""
        self._path = path
        self._clock = clock

    @property
    def today(self) -> Day:
        """Return what was moved since midnight UTC."""
        number = int(self._clock() // _DAY_S)
        try:
            kept = read_json(self._path, Day, at_most=LARGEST_RECORD_BYTES)
        except (FileNotFoundError, msgspec.DecodeError):
            return Day(day=number)
        return kept if kept.day == number else Day(day=number)

    def add(self, *, bytes_down: int = 0, bytes_up: int = 0) -> None:
        """Count more bytes."""
        today = self.today
        moved = msgspec.structs.replace(
            today, bytes_down=today.bytes_down + bytes_down, bytes_up=today.bytes_up + bytes_up
        )
        # Not flushed: a power cut may forget the last round, and waiting would cost each one.
        write_atomically(self._path, msgspec.json.encode(moved), flush=False)
