"""Measure what one input costs its reader: processor seconds, and memory beyond what was held."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

MOST_S = 5.0
"""Far more than a reader needs, since processors differ; what grows with the square takes more."""
MOST_MB = 200.0
LARGEST_INPUT_BYTES = 1 << 20
"""The bounds hold for inputs of up to so many bytes."""

_STATUS = Path("/proc/self/status")
_FORGET_PEAK = Path("/proc/self/clear_refs")


class Cost(NamedTuple):
    """The cost of one input in processor seconds and megabytes, and the error that came of it."""

    seconds: float
    peak_mb: float
    error: BaseException | None

    @property
    def is_too_much(self) -> bool:
        """Return whether it is more than a reader may take."""
        return self.seconds > MOST_S or self.peak_mb > MOST_MB


def cost_of(read: Callable[[bytes], object], content: bytes) -> Cost:
    """Read an input; whatever the reader raises is returned."""
    error: BaseException | None = None
    _FORGET_PEAK.write_text("5")
    before = _memory("VmRSS")
    # Processor time: a busy machine is no fault of the reader.
    start = time.process_time()
    try:
        read(content)
    except KeyboardInterrupt:
        raise
    # Beside errors, what no reader expects: an exit, or a panic of a library in Rust.
    except BaseException as raised:
        error = raised
    seconds = time.process_time() - start
    return Cost(seconds, (_memory("VmHWM") - before) / 1e6, error)


def _memory(name: str) -> int:
    status = _STATUS.read_bytes()
    start = status.index(name.encode()) + len(name) + 1
    return int(status[start : status.index(b"kB", start)]) << 10
