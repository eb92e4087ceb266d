"""Draws that an adversary must not foresee: keys, tokens, cohorts and calibrated noise.

Every draw comes from the operating system's cryptographic generator. It has no seed and no state
to save, so nothing here can be replayed; a test that needs repetition passes its own source.
"""

import builtins
import secrets
from collections.abc import Sequence


class SecureSource:
    """Secret bytes and secret choices from the operating system's generator."""

    def __init__(self) -> None:
        self._system = secrets.SystemRandom()

    def bytes(self, count: int) -> builtins.bytes:
        """Return ``count`` bytes, at least 0, each uniform and independent."""
        if count < 0:
            raise ValueError(f"count must be >= 0, got {count}")
        return secrets.token_bytes(count)

    def choose(self, population: Sequence[str], k: int) -> list[str]:
        """Return ``k`` different members, every such subset being equally likely.

        Raises ValueError if ``k`` is out of range or a name stands twice.
        """
        if not 0 <= k <= len(population):
            raise ValueError(
                f"k must be between 0 and the population of {len(population)}, got {k}"
            )
        if len(set(population)) != len(population):
            raise ValueError("population must hold each name once: a name twice is drawn too often")
        return self._system.sample(population, k)

    def flip(self, population: Sequence[str], rate: float) -> list[str]:
        """Return the members whose own coin of a rate in (0, 1], exact to 2^-64, showed heads.

        Raises ValueError if the rate is out of range or a name stands twice.
        """
        if not 0 < rate <= 1:
            raise ValueError(f"rate must be in (0, 1], got {rate}")
        if len(set(population)) != len(population):
            raise ValueError("population must hold each name once: a name twice has two coins")
        # A float times a power of two is exact, so a rate of 1 is above every draw.
        limit = int(rate * 2**64)
        return [name for name in population if secrets.randbits(64) < limit]
