"""Say how long each simulated device takes for its work, on a clock that only counts.

A simulation trains one client after the other, so how long a federation would take is not how long
the simulation takes. Where devices differ in speed, each takes the seconds that follow from its
examples and from how slow it is, and rounds close when they would: `clock_s` in the figures.
Speeds follow from the run's seed and a client's name alone.
"""

import hashlib
import math
from collections.abc import Mapping

import msgspec

from simulation.population.examples import Examples


class SpeedSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say how fast the simulated devices are.

    Attributes:
        slowest: How many times longer the slowest device would take than the fastest for the same
            work, at least 1; logarithms of slowness are spread evenly between the two.
        examples_per_s: What the fastest trains on in a second: words or characters of text, images,
            clips.
    """

    slowest: float
    examples_per_s: float = 1000.0

    def __post_init__(self) -> None:
        if not 1 <= self.slowest < math.inf:
            raise ValueError(f"slowest must be >= 1 and finite, got {self.slowest}")
        if not 0 < self.examples_per_s < math.inf:
            raise ValueError(f"examples_per_s must be > 0 and finite, got {self.examples_per_s}")


def device_seconds(
    settings: SpeedSettings, clients: Mapping[str, Examples], *, local_epochs: int, seed: int
) -> dict[str, float]:
    """Return how long every client takes for a round, in seconds of the simulated clock.

    Args:
        settings: How fast devices are.
        clients: Everybody's examples by name.
        local_epochs: Passes over them in a round.
        seed: Seed of the run.
    """
    return {
        name: len(examples)
        * local_epochs
        / settings.examples_per_s
        * settings.slowest ** _share(seed, name)
        for name, examples in clients.items()
    }


def _share(seed: int, name: str) -> float:
    """Return a number in [0, 1) that follows from seed and name."""
    digest = hashlib.sha256(f"speed/{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
