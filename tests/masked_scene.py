"""A masked round for tests: keys that repeat, and the trainers that draw by them."""

import hashlib
from dataclasses import dataclass
from functools import partial

from edge_client.training.local_round import LocalTrainer


@dataclass(frozen=True)
class RepeatedKeys:
    """Keys that follow from their label: the same draws every time."""

    seed: int = 0
    repeats = True

    def draw(self, label: str, /) -> bytes:
        """Return the label's key."""
        return hashlib.sha256(f"{self.seed}/{label}".encode()).digest()


repeating_trainer = partial(LocalTrainer, seeded=True, keys=RepeatedKeys())
"""A factory of trainers for worker processes, whose noise repeats."""
