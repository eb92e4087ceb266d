"""Wait longer after each failure, by a random amount, so that devices never return in step.

After a coordinator restarts, every device that lost its stream comes back. Full jitter (a uniform
draw below an exponential ceiling) spreads them evenly over the ceiling.
"""

import random
from collections.abc import Iterator

FIRST_CEILING_S = 0.25
GROWTH = 2.0
LAST_CEILING_S = 300.0


def delays(source: random.Random, *, last_ceiling_s: float = LAST_CEILING_S) -> Iterator[float]:
    """Yield waits in seconds, without end: uniform draws below 0.25, 0.5, 1, ... seconds."""
    ceiling = FIRST_CEILING_S
    while True:
        yield source.uniform(0, ceiling)
        ceiling = min(ceiling * GROWTH, last_ceiling_s)
