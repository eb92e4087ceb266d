"""Move a pointer to and fro, as a running coordinator moves ``latest``."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Protocol, TypeVar

from models.plan.release_record import ReleaseRecord

LEAST_READS, LIMIT_S = 200, 60.0


class Released(Protocol):
    """Hold what was read of a release."""

    @property
    def record(self) -> ReleaseRecord:
        """Return what is known of it."""


Read = TypeVar("Read", bound=Released)


def read_both(read: Callable[[], Read]) -> list[Read]:
    """Read what a moving pointer names until two rounds were seen, many times in any case."""
    found: list[Read] = []
    ends = time.monotonic() + LIMIT_S
    while len(found) < LEAST_READS or len({one.record.round for one in found}) < 2:
        assert time.monotonic() < ends, "the pointer does not move"
        found.append(read())
    return found


@contextmanager
def moving_pointer(pointer: Path, targets: tuple[str, ...]) -> Iterator[None]:
    """Let a link name one target after another, as fast as it goes, until the block ends."""
    stopped = threading.Event()

    def move() -> None:
        fresh = pointer.with_name(".moving")
        for target in cycle(targets):
            fresh.symlink_to(target)
            fresh.replace(pointer)
            if stopped.is_set():
                return

    pointer.unlink(missing_ok=True)
    pointer.symlink_to(targets[0])
    mover = threading.Thread(target=move)
    mover.start()
    try:
        yield
    finally:
        stopped.set()
        mover.join()
