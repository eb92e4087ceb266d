"""Make the plan that devices get from a federation's settings."""

import msgspec

from models.plan.plan import FITS, Plan, PlanKind, VocabularySettings
from models.plan.plugins import needed_plugins
from models.plan.stages import plan_of_round
from models.settings.hypernetwork import EmbeddingFitSettings
from models.settings.weighing import AttentiveWeights, EqualWeights, ExampleWeights, Weighing
from models.text.vocabulary import Vocabulary
from privacy.noise.masked_settings import MaskedNoise
from privacy.noise.plan_events import sampled_places
from server.aggregation.settings import AggregationSettings, AttentiveSettings, MeanSettings
from server.config.settings import FederationSettings
from server.config.word_list import WordListSettings


def make_plan(
    config: FederationSettings,
    run: str,
    kind: PlanKind = "train",
    *,
    round_number: int = 1,
    cohort_size: int | None = None,
    vocabulary: Vocabulary | None = None,
) -> Plan:
    """Return the plan that devices get; a drawn ``participation_rate`` needs the ``cohort_size``.

    Raises:
        OSError: If the word list cannot be read.
        ValueError: If there is no such task, the word list does not fit the settings, or
            ``cohort_size`` or ``fitting`` is missing.
    """
    from models.tasks.registry import task_named  # Here, so that reading a file needs no torch.

    task_named(config.task)
    words = config.load_vocabulary() if vocabulary is None else vocabulary
    if config.vocabulary is not None and words is not None and len(words) != config.vocabulary.size:
        raise ValueError(f"vocabulary must have {config.vocabulary.size} words, got {len(words)}")
    size = cohort_size or sampled_places(config.rounds, config.privacy)
    size = size or config.rounds.cohort_size
    if size is None:
        raise ValueError("cohort_size must be given when a drawn cohort has a participation_rate")
    growth = config.growth
    plugins = needed_plugins(config.model, config.task, config.personalisation)
    whole = Plan(
        run=run,
        kind=kind,
        task=config.task,
        model=config.model,
        schema_sha256=config.schema.sha256.hex(),
        vocabulary=_described(config.vocabulary, words),
        training=config.training,
        personalisation=config.personalisation,
        privacy=config.privacy,
        cohort_size=size,
        # Secret coins close a round at its deadline, however few came.
        quorum=None if config.rounds.selection == "sampled" else config.rounds.quorum,
        seed=config.seed,
        embedding_fit=_fit_of(config, kind),
        growth=growth,
        growth_stage=None if growth is None else growth.stage_count,
        compression=config.compression,
        evaluation_noise=config.evaluation.noise if kind == "evaluate" else None,
        weighing=(
            weighing_of(config.aggregation)
            if isinstance(config.privacy, MaskedNoise)
            else msgspec.UNSET
        ),
        plugins=plugins or msgspec.UNSET,
    )
    return plan_of_round(whole, round_number)


def weighing_of(aggregation: AggregationSettings) -> Weighing:
    """Return how devices weigh their own updates, where nobody else can."""
    match aggregation:
        case AttentiveSettings(attention_strength=strength, grouping=grouping):
            return AttentiveWeights(attention_strength=strength, grouping=grouping)
        case MeanSettings(weighting="examples"):
            return ExampleWeights()
        case _:
            # A robust rule weighs groups, not devices.
            return EqualWeights()


def _fit_of(config: FederationSettings, kind: PlanKind) -> EmbeddingFitSettings | None:
    if kind not in FITS:
        return None
    if config.fitting is None:
        raise ValueError("fitting must be set for devices to fit a model of their own")
    return config.fitting.fit


def _described(
    settings: WordListSettings | None, words: Vocabulary | None
) -> VocabularySettings | None:
    return None if settings is None or words is None else settings.describe(words)
