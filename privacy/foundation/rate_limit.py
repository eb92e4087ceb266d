"""So many calls a second for each client and no more."""

import time
from collections import OrderedDict
from collections.abc import Callable

_KEPT_CLIENTS = 100_000


class RateLimit:
    """A bucket for each client, which fills with one call's worth every 1 / rate seconds.

    Meant for one thread, the event loop's.
    """

    def __init__(
        self, *, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin with full buckets of ``burst`` calls; ``clock`` gives seconds, never going back."""
        if not per_second > 0:
            raise ValueError(f"per_second must be > 0, got {per_second}")
        if burst < 1:
            raise ValueError(f"burst must be >= 1, got {burst}")
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, client: str) -> float:
        """Take one call out of the client's bucket; return 0, or how long to wait instead."""
        now = self._clock()
        held, since = self._buckets.pop(client, (float(self._burst), now))
        held = min(self._burst, held + (now - since) * self._per_second)
        allowed = held >= 1
        self._buckets[client] = (held - 1 if allowed else held, now)
        if len(self._buckets) > _KEPT_CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - held) / self._per_second
