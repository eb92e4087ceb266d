"""A masked round for tests: keys that repeat, and the trainers that draw by them."""

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import Any

from edge_client.training.local_round import LocalTrainer
from models.plan.plan import Plan, TrainingSettings, VocabularySettings
from models.settings.model import GruLmSettings, schema_of
from models.settings.weighing import EqualWeights, Weighing
from models.vector.schema import Schema, TensorSpec
from privacy.noise.masked_settings import MaskedNoise


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


def masked_noise(**changes: Any) -> MaskedNoise:
    """Return settings of mode ``masked``, some of them changed."""
    settings: dict[str, Any] = {
        "clipping_norm": 1.0,
        "noise_multiplier": 1.0,
        "delta": 1e-5,
        "epsilon_budget": 10.0,
        "coordinator_epsilon_budget": 20.0,
        "honest_share": 1.0,
        "adjacency": "zero-out",
    }
    return MaskedNoise(**(settings | changes))


def masked_plan(
    *,
    privacy: MaskedNoise | None = None,
    weighing: Weighing | None = None,
    hidden_size: int = 2,
    **changes: Any,
) -> Plan:
    """Return the plan of a masked round of a tiny model, some of it changed."""
    model = GruLmSettings(vocabulary_size=3, hidden_size=hidden_size)
    settings: dict[str, Any] = {
        "run": "00" * 16,
        "model": model,
        "schema_sha256": schema_of(model).sha256.hex(),
        "vocabulary": VocabularySettings(name="test", size=3, sha256="00" * 32),
        "training": TrainingSettings(learning_rate=0.5, batch_size=1),
        "privacy": privacy or masked_noise(),
        "cohort_size": 3,
        "quorum": 3,
        "seed": 1,
        "weighing": weighing or EqualWeights(),
    }
    return Plan(**(settings | changes))


SUMMED = Schema(
    (
        TensorSpec(name="weight", shape=(2,), layer="first"),
        TensorSpec(name="bias", shape=(2,), layer="second"),
    )
)
"""Four elements in two tensors, for sums that a reader can add up."""
