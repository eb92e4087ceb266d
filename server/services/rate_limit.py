"""Limit how often one address may try to enrol.

Tokens have 128 random bits and cannot be guessed; the limit keeps a stranger from spending the
coordinator's time on signatures.
"""

from collections import OrderedDict

_ADDRESSES_KEPT = 10_000


class RateLimit:
    """Hold a bucket for each address; each call takes one drop, and drops come back with time."""

    def __init__(self, *, per_second: float, burst: int) -> None:
        """Set the limit.

        Args:
            per_second: Calls per second that one address may make for ever; > 0.
            burst: Calls that it may make at once; at least 1.
        """
        if not per_second > 0:
            raise ValueError(f"per_second must be > 0, got {per_second}")
        if burst < 1:
            raise ValueError(f"burst must be >= 1, got {burst}")
        self._per_second = per_second
        self._burst = burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, address: str, now: float) -> bool:
        """Take a drop from the address's bucket and return whether there was one.

        Args:
            address: Where the call comes from.
            now: Time in seconds; never less than in an earlier call.
        """
        level, then = self._buckets.pop(address, (float(self._burst), now))
        level = min(self._burst, level + (now - then) * self._per_second)
        allowed = level >= 1
        self._buckets[address] = (level - allowed, now)
        if len(self._buckets) > _ADDRESSES_KEPT:
            self._buckets.popitem(last=False)
        return allowed
