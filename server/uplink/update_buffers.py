"""Lend the few pieces of memory into which a round's sealed updates are opened.

A buffer keeps its update until it is needed for another, so a verified one is not opened twice.
"""

import mmap
import threading
from collections.abc import Hashable

# As many as are opened at one time on arrival; never lent for longer than that takes.
_LEAST = 2
_MOST = 16
# Times as many devices as buffers, from which on a cohort is large.
_LARGE = 8
_MOST_BYTES = 512 << 20


def buffer_count_for(update_bytes: int, cohort_size: int | None, *, closing: int = _LEAST) -> int:
    """Return how many updates to hold: a small cohort's all, and never more than a fixed memory.

    ``closing`` is what a close wants (``closing_workers.buffers_wanted``): so many more than a
    cohort let all of it be opened on arrival. Of a large cohort next to nothing would be there
    still when it closes, so that what is opened at one time is enough. None is a cohort of any
    size.
    """
    most, spare = max(_MOST, 2 * closing), max(_LEAST, closing)
    if cohort_size is None:
        wanted = most
    elif cohort_size > _LARGE * most:
        wanted = 2 * spare
    else:
        wanted = min(most, cohort_size + spare)
    return max(_LEAST, min(wanted, _MOST_BYTES // update_bytes))


class UpdateBuffer:
    """Memory for one update, of which ``payload_bytes`` are in use.

    ``holds`` names an update that is there whole and verified, ``attempt`` its attempt at a round.
    """

    def __init__(self, size: int) -> None:
        self.memory = memoryview(mmap.mmap(-1, size))
        self.payload_bytes = size
        self.holds: Hashable | None = None
        self.attempt: Hashable | None = None
        self.signing_sha256 = b""

    def keep(self, holds: Hashable, attempt: Hashable, signing_sha256: bytes) -> None:
        """Note what lies in the memory that is used."""
        self.holds, self.attempt, self.signing_sha256 = holds, attempt, signing_sha256


class UpdateBuffers:
    """A fixed number of buffers of ``size`` bytes each, lent to as many threads.

    Attributes:
        for_closing: Those that stay free for short loans: the close of a round may take as many
            at one time.
    """

    def __init__(self, count: int, size: int, *, closing: int = _LEAST) -> None:
        """Take memory; a close gets the ``closing`` that it wants, but no more than every second.

        Two are always left for short loans, and a single buffer is one.
        """
        self.for_closing = min(count, max(_LEAST, min(closing, count // 2)))
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

    def take_spare(self, attempt: Hashable) -> UpdateBuffer | None:
        """Return a buffer for an update of this attempt for as long as it takes to come, or None.

        Enough are always left for short loans, and updates of the same attempt stay.
        """
        with self._returned:
            unused = [one for one in self._free if one.holds is None or one.attempt != attempt]
            if len(self._free) <= max(_LEAST, self.for_closing) or not unused:
                return None
            self._free.remove(unused[0])
            unused[0].holds = None
            return unused[0]

    def forget(self) -> None:
        """Let go of what all free buffers hold."""
        with self._returned:
            for buffer in self._free:
                buffer.holds = None

    def give_back(self, buffer: UpdateBuffer) -> None:
        """Let another thread have the buffer."""
        with self._returned:
            self._free.append(buffer)
            self._returned.notify()
