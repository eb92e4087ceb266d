"""Watch the memory of this process and all that it started."""

import threading

import psutil


class MemoryWatch(threading.Thread):
    """Note the largest memory of this process and its children, shared pages counted once.

    Attributes:
        peak_bytes: The largest sum seen.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self._stopped = threading.Event()

    def run(self) -> None:
        """Look twice a second until stopped."""
        this = psutil.Process()
        while not self._stopped.wait(0.5):
            self.peak_bytes = max(self.peak_bytes, _memory_bytes(this))

    def stop(self) -> None:
        """End the watch."""
        self._stopped.set()
        self.join()


def _memory_bytes(process: psutil.Process) -> int:
    total = 0
    for one in [process, *process.children(recursive=True)]:
        try:
            total += int(one.memory_full_info().pss)
        except psutil.NoSuchProcess:
            continue
    return total
