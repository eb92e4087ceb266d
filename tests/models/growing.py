"""A plan whose model grows, for tests."""

from typing import Any

from models.plan.plan import Plan, TrainingSettings, VocabularySettings
from models.plan.roles import assign_roles
from models.plan.stages import plan_at_stage
from models.settings.growth import GrowthSettings
from models.settings.model import ModelSettings, TransformerLmSettings, schema_of
from models.settings.personalisation import GlobalSettings, PersonalisationSettings
from privacy.noise.settings import NoNoise

MODEL = TransformerLmSettings(
    vocabulary_size=20,
    model_size=8,
    head_count=2,
    layer_count=3,
    feedforward_size=12,
    context_size=16,
    tied=False,
)


def growing_plan(
    stage: int,
    *,
    model: ModelSettings = MODEL,
    task: str = "next_word",
    start: Any = "zero",
    personalisation: PersonalisationSettings = GlobalSettings(),  # noqa: B008  # frozen
    stage_count: int = 3,
    **training: Any,
) -> Plan:
    """Return the plan of a stage of a model that grows from 1 layer to 3, every two rounds."""
    words = VocabularySettings(name="test", size=20, sha256="00" * 32)
    whole = Plan(
        run="00" * 16,
        task=task,
        model=model,
        schema_sha256=assign_roles(personalisation, schema_of(model)).sha256.hex(),
        vocabulary=words if task == "next_word" else None,
        training=TrainingSettings(
            **{"learning_rate": 0.5, "batch_size": 3, "bptt_steps": 4, **training}
        ),
        personalisation=personalisation,
        privacy=NoNoise(),
        cohort_size=1,
        seed=11,
        growth=GrowthSettings(
            target_layer_count=3, stage_count=stage_count, round_count=2 * stage_count, start=start
        ),
        growth_stage=stage_count,
    )
    return plan_at_stage(whole, stage)
