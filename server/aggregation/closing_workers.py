"""The cores that share the work of one close.

They are threads: decrypting, reading, decoding, measuring, sorting and adding all release the
interpreter. Nothing here decides an order. An update is looked at by one thread, and a sum is split
by its elements, each range going through the updates in slot order, so the bits are the same
whatever the number of threads.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Self, TypeVar

Result = TypeVar("Result")

_LEAST = 2
_MOST = 16


def closing_worker_count() -> int:
    """Return how many workers the closes of this machine have.

    All cores but one from the third on, which stays with the calls of devices. At least two: while
    one waits for the disk, the other computes. More than 16 wait for memory, not for each other.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(_LEAST, min(cores - 1, _MOST))


def buffers_wanted(count: int) -> int:
    """Return how many updates lie open at one time where nothing limits that many workers."""
    return 1 if count == 1 else count + 1 + _lag(count)


def _batch(count: int) -> int:
    return max(1, count // 2)


def _lag(count: int) -> int:
    # One batch is being added while the next one fills.
    return 2 * _batch(count) - 1


class ClosingWorkers:
    """The workers of one close; a single one works in the caller's own thread.

    Attributes:
        count: Workers.
        ahead: Updates that may be opened before they are asked for, the next one included.
        batch: Updates that are added together.
        lag: Updates, beside the latest, whose values the sum may still read.
    """

    def __init__(self, count: int = 1, *, buffers: int | None = None) -> None:
        """Start without threads; ``buffers`` limits the updates that lie open, None does not.

        Raises:
            ValueError: If there is no worker or no buffer.
        """
        wanted = buffers_wanted(count)
        given = wanted if buffers is None else buffers
        if count < 1 or given < 1:
            raise ValueError(f"a close needs a worker and a buffer, got {count} and {given}")
        self.count = count
        # With too few buffers no update may wait for others: it is added before the next is taken.
        self.batch = _batch(count) if wanted <= given else 1
        self.lag = _lag(count) if count > 1 and wanted <= given else 0
        self.ahead = 1 if count == 1 else min(count + 1, given - self.lag)
        self._threads: ThreadPoolExecutor | None = None

    def submit(self, work: Callable[[], Result]) -> "Future[Result]":
        """Have work done; with a single worker it is done when this returns."""
        if self.count > 1:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self.count, thread_name_prefix="sotto-close")
            return self._threads.submit(work)
        done: Future[Result] = Future()
        try:
            done.set_result(work())
        except Exception as error:
            done.set_exception(error)
        return done

    def run(self, works: Sequence[Callable[[], None]]) -> None:
        """Have work done side by side and wait for all of it; raises as the first that failed."""
        settle([self.submit(work) for work in works])

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let the threads finish what they do, and end them."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)


def settle(running: "Sequence[Future[None]]") -> None:
    """Wait until all is done; raises as the first that failed."""
    wait(running)
    for one in running:
        one.result()
