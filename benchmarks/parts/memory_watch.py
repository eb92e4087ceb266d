"""Watch the memory of this process, with or without all that it started."""

import threading
from collections.abc import Callable

import psutil


class MemoryWatch(threading.Thread):
    """Note the largest memory of this process.

    Attributes:
        peak_bytes: The largest seen.
    """

    def __init__(self, measured: Callable[[psutil.Process], int], *, every_s: float) -> None:
        """Watch what ``measured`` says of this process, every so many seconds."""
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self._measured, self._every_s = measured, every_s
        self._stopped = threading.Event()

    def run(self) -> None:
        """Look until stopped."""
        this = psutil.Process()
        while not self._stopped.wait(self._every_s):
            self.peak_bytes = max(self.peak_bytes, self._measured(this))

    def stop(self) -> None:
        """End the watch."""
        self._stopped.set()
        self.join()


def watch_of_all() -> MemoryWatch:
    """Return a watch of this process and its children, shared pages counted once."""
    return MemoryWatch(_memory_with_children, every_s=0.5)


def watch_of_this_process() -> MemoryWatch:
    """Return a watch of this process without its children."""
    return MemoryWatch(lambda this: int(this.memory_info().rss), every_s=0.05)


def _memory_with_children(process: psutil.Process) -> int:
    total = 0
    for one in [process, *process.children(recursive=True)]:
        try:
            total += int(one.memory_full_info().pss)
        except psutil.NoSuchProcess:
            continue
    return total
