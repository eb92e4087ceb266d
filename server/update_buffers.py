"""Lend the few pieces of memory into which sealed updates are opened.

Their number bounds what a round needs, whatever the cohort. A buffer keeps its content until it is
needed for another update: one that was verified a moment ago is summed without being opened again.
"""

import mmap
import threading
from collections.abc import Hashable


class UpdateBuffer:
    """Hold memory for one update.

    Attributes:
        memory: Writable bytes.
        holds: What was opened into it, whole and verified; None while it is being filled.
        signing_sha256: Certificate that what it holds was signed with.
    """

    def __init__(self, size: int) -> None:
        self.memory = memoryview(mmap.mmap(-1, size))
        self.holds: Hashable | None = None
        self.signing_sha256 = b""


class UpdateBuffers:
    """Lend a fixed number of buffers to as many threads."""

    def __init__(self, count: int, size: int) -> None:
        """Make the buffers.

        Args:
            count: How many there are.
            size: Bytes of each.
        """
        # The one that was given back longest ago comes first.
        self._free = [UpdateBuffer(size) for _ in range(count)]
        self._returned = threading.Condition()

    def take(self, wanted: Hashable) -> UpdateBuffer:
        """Return the free buffer that holds what is wanted, else any; waits until one is free."""
        with self._returned:
            self._returned.wait_for(lambda: bool(self._free))
            held = (buffer for buffer in self._free if buffer.holds == wanted)
            chosen = next(held, self._free[0])
            self._free.remove(chosen)
            return chosen

    def give_back(self, buffer: UpdateBuffer) -> None:
        """Let another thread have the buffer."""
        with self._returned:
            self._free.append(buffer)
            self._returned.notify()
