"""A tiny plan and a tiny text, for tests of local training."""

from typing import Any

import torch
from torch import Tensor

from models.plan.plan import Plan, TrainingSettings, VocabularySettings
from models.settings.model import GruLmSettings, WordModelSettings, schema_of
from privacy.noise.settings import NoNoise, PrivacySettings

MODEL = GruLmSettings(vocabulary_size=20, hidden_size=6)


def make_plan(
    *, model: WordModelSettings = MODEL, privacy: PrivacySettings | None = None, **training: Any
) -> Plan:
    """Return a plan; keywords other than these are training settings, of whatever type."""
    settings: dict[str, Any] = {"learning_rate": 0.5, "batch_size": 3, "bptt_steps": 4, **training}
    return Plan(
        run="00" * 16,
        model=model,
        schema_sha256=schema_of(model).sha256.hex(),
        vocabulary=VocabularySettings(name="test", size=model.vocabulary_size, sha256="00" * 32),
        training=TrainingSettings(**settings),
        privacy=privacy or NoNoise(),
        cohort_size=1,
        seed=11,
    )


def make_text(tokens: int, seed: int = 0) -> Tensor:
    """Return random words with an end of sentence after every fifth."""
    stream = torch.randint(2, 20, (tokens,), generator=torch.Generator().manual_seed(seed))
    stream[4::5] = 1
    return stream
