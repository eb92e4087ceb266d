"""Move a pointer to and fro, as a running coordinator moves ``latest``."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path


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
