"""Wait longer after each failure, with full jitter: a uniform draw below an exponential ceiling.

After a coordinator restarts, it spreads the devices that come back evenly over the ceiling. The
last ceiling bounds how long a device stays away from a coordinator that is back: half a minute,
with the time that a connection takes.
"""

import random
from collections.abc import Iterator

FIRST_CEILING_S = 0.25
GROWTH = 2.0
LAST_CEILING_S = 20.0


def delays(source: random.Random, *, last_ceiling_s: float = LAST_CEILING_S) -> Iterator[float]:
    """Yield waits in seconds, without end: uniform draws below 0.25, 0.5, 1, ... 20 seconds."""
    ceiling = FIRST_CEILING_S
    while True:
        yield source.uniform(0, ceiling)
        ceiling = min(ceiling * GROWTH, last_ceiling_s)
