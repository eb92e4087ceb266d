"""Draw cohorts from a seed, so that a simulated run can be repeated and resumed.

A deployment draws from ``privacy.foundation.secure_source.SecureSource``; a simulation has nobody
to hide its cohorts from. The coins of a sampled cohort stay secret here too: the run's guarantee
rests on them, and a run under a guarantee cannot be repeated anyway.
"""

import hashlib
import random
from collections.abc import Sequence

from privacy.foundation.secure_source import SecureSource


class SeededSource:
    """A stand-in for ``SecureSource`` with repeatable draws.

    Each round has its own stream, so a run resumed at round 40 draws as an undisturbed one.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.start_round(1)

    def start_round(self, round_number: int) -> None:
        """Begin the stream of draws that belongs to a round."""
        digest = hashlib.sha256(f"participation/{self._seed}/{round_number}".encode()).digest()
        # Repeatable on purpose: nothing here protects anybody.
        self._draws = random.Random(digest)  # noqa: S311

    def bytes(self, n: int) -> bytes:
        """Return ``n`` bytes."""
        return self._draws.randbytes(n)

    def choose(self, population: Sequence[str], k: int) -> list[str]:
        """Return ``k`` different members of the population, each set equally likely.

        Raises:
            ValueError: If the population has fewer than ``k`` members.
        """
        if not 0 <= k <= len(population):
            raise ValueError(f"k must be in [0, {len(population)}], got {k}")
        return self._draws.sample(population, k)

    def flip(self, population: Sequence[str], rate: float) -> list[str]:
        """Throw a secret coin for each member, as a deployment does.

        Raises:
            ValueError: If ``rate`` is not in (0, 1].
        """
        return SecureSource().flip(population, rate)
