"""Wait for what other processes and threads do."""

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def until(condition: Callable[[], Found], limit_s: float = 60.0) -> Found:
    """Return the first true answer of ``condition``, asked again and again for ``limit_s``."""
    deadline = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"it did not happen within {limit_s:g} s"
        time.sleep(0.02)
    return found
