"""Compose the settings of a federation and read them from its one TOML file.

Every package owns its settings; this file only puts them side by side, checks what no single one
can see, and makes the plan that devices get. Reading is strict: an unknown key, a float for an
integer or a missing value is refused with the file and the path of the key.
"""

import hashlib
import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import msgspec

from models.plan.frozen import check_frozen, freeze
from models.plan.growth_traffic import describe_growth
from models.plan.plan import FITS, Plan, PlanKind, TrainingSettings, VocabularySettings
from models.plan.roles import assign_roles, check_local_epochs, check_task
from models.plan.stages import plan_of_round
from models.plan.travel import describe_travel
from models.plan.word_rules import check_words
from models.settings.compression import CompressionSettings, check_compression
from models.settings.growing_layers import check_growth, model_at_stage
from models.settings.growth import GrowthSettings
from models.settings.hypernetwork import EmbeddingFitSettings
from models.settings.layer_groups import check_layer_groups
from models.settings.model import ModelSettings, schema_of
from models.settings.personalisation import GlobalSettings, PersonalisationSettings
from models.text.vocabulary import Vocabulary
from models.vector.schema import RELEASED, SENT, Role, Schema
from privacy.foundation.strict_decoding import decoded
from privacy.noise.calibrated_settings import TreeNoise
from privacy.noise.plan_events import sampled_places
from privacy.noise.settings import PrivacySettings
from server.aggregation.robust_settings import RobustSettings
from server.aggregation.screening_settings import ScreeningSettings, check_screening
from server.aggregation.settings import AggregationSettings, AttentiveSettings
from server.config.convergence import ConvergenceSettings
from server.config.evaluation import EvaluationSettings
from server.config.evaluation_rules import check_evaluation
from server.config.fitting import FittingSettings, check_fitting
from server.config.guarantee_rules import check_guarantee
from server.config.listen import ListenSettings
from server.config.personalisation_rules import check_deployable, check_personalisation
from server.config.robust_rules import check_look_back, check_robust
from server.config.rounds import RoundSettings
from server.config.store import StoreSettings
from server.config.word_list import WordListSettings


class ConfigError(ValueError):
    """Raised when a federation's settings cannot be used; names the file and the key."""


class FederationConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hold everything that a federation's operator decides.

    Attributes:
        seed: Seed of the run's initial parameters and of the order of local data. Nothing secret
            comes from it.
        task: Name in the task registry.
        model: The model; its ``family`` picks the kind.
        growth: When the model gets its layers; absent gives it all of them from the first round.
            ``model`` is the whole model, as it is after the last stage.
        start_from: Folder of a release of the same model and word list whose parameters the run
            starts from; they must be public. Absent draws them from the seed.
        vocabulary: The word list; absent for a task without words.
        training: Local training.
        personalisation: What each device keeps for itself.
        privacy: Noise mode and clipping; ``mode`` picks the kind.
        aggregation: How updates become one; ``rule`` picks the kind.
        compression: In which form updates travel; absent for float32 as they are. May be changed
            between two rounds.
        screening: Which updates are set aside before anything is summed.
        rounds: Who takes part and when a round ends.
        convergence: When the run stops before its cap; absent means never.
        evaluation: How released models are measured.
        fitting: How devices that took part in no round get a model of their own; absent means that
            they get it with their first round.
        listen: Where the coordinator is reached.
        store: Where its records lie.
    """

    seed: int
    task: str = "next_word"
    model: ModelSettings
    growth: GrowthSettings | None = None
    start_from: str | None = None
    vocabulary: WordListSettings | None = None
    training: TrainingSettings
    personalisation: PersonalisationSettings = GlobalSettings()
    privacy: PrivacySettings
    aggregation: AggregationSettings
    compression: CompressionSettings | None = None
    screening: ScreeningSettings = ScreeningSettings()
    rounds: RoundSettings
    convergence: ConvergenceSettings | None = None
    evaluation: EvaluationSettings = EvaluationSettings()
    fitting: FittingSettings | None = None
    listen: ListenSettings = ListenSettings()
    store: StoreSettings = StoreSettings()

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be in [0, 2^63), got {self.seed}")
        schema = self.schema
        self.privacy.tensor_clips(len(schema.with_roles(*SENT).tensors))
        if self.compression is not None:
            check_compression(self.compression, self.privacy)
            self._check_layer_groups(self.compression)
        check_task(self.personalisation, self.task)
        check_local_epochs(self.personalisation, self.training.local_epochs)
        check_frozen(self.personalisation, schema_of(self.model), self.training.frozen)
        check_personalisation(
            self.personalisation,
            schema,
            self.privacy,
            self.aggregation,
            compression=self.compression,
        )
        words = self.vocabulary
        check_words(self.task, self.model, None if words is None else words.size)
        self._check_public_text()
        if isinstance(self.aggregation, AttentiveSettings) and self.privacy.clipping_norm is None:
            raise ValueError(
                'aggregation.rule = "attentive" weighs against the clipping norm; '
                'set privacy.clipping_norm, or use rule = "literal"'
            )
        check_screening(self.screening, self.privacy)
        if isinstance(self.aggregation, RobustSettings):
            check_robust(self.aggregation, schema, self.privacy, quorum=self.rounds.quorum)
        check_look_back(self.aggregation, self.store)
        for staged in self._schemas_of_stages():
            check_guarantee(
                staged.with_roles(Role.SHARED),
                self.privacy,
                self.aggregation,
                self.rounds,
            )
        check_evaluation(
            self.evaluation,
            self.rounds,
            self.privacy,
            hides_examples=self.training.example_privacy is not None,
        )
        if self.fitting is not None:
            check_fitting(self.fitting, self.personalisation, schema, self.privacy)
        if self.convergence is not None and self.evaluation.kind == "none":
            raise ValueError(
                "convergence needs a figure to follow; set evaluation.kind, or remove convergence"
            )

    def _check_layer_groups(self, compression: CompressionSettings) -> None:
        check_layer_groups(
            compression,
            self.schema_at(None if self.growth is None else 1).with_roles(*SENT),
            personalisation=self.personalisation,
            privacy=self.privacy,
            keeps_optimiser=self.training.optimiser_state == "kept",
            hides_examples=self.training.example_privacy is not None,
        )
        if compression.layer_groups is not None and self.screening.norm_factor is not None:
            raise ValueError(
                "screening.norm_factor must be absent with compression.layer_groups: groups of "
                "layers differ in length, and the longest would be set aside"
            )

    @property
    def schema(self) -> Schema:
        """Return every tensor of the whole model, with its role."""
        return self.schema_at(None)

    @property
    def run_digest(self) -> bytes:
        """Return what must not change while a run lasts: the schema, and when the model grows."""
        if self.growth is None:
            return self.schema.sha256
        grown = msgspec.json.encode(self.growth, order="deterministic")
        return hashlib.sha256(self.schema.sha256 + grown).digest()

    def model_at(self, growth_stage: int | None) -> ModelSettings:
        """Return the model of a stage of growth; the whole one for None, or where nothing grows."""
        if self.growth is None or growth_stage is None:
            return self.model
        return model_at_stage(self.model, self.growth, growth_stage)

    def schema_at(self, growth_stage: int | None) -> Schema:
        """Return every tensor of ``model_at``, with its role."""
        return freeze(
            assign_roles(self.personalisation, schema_of(self.model_at(growth_stage))),
            self.training.frozen,
        )

    def _schemas_of_stages(self) -> Iterator[Schema]:
        """Yield the schema of every stage; that of the model alone where it does not grow.

        Raises:
            ValueError: If the model cannot grow as it is asked to.
        """
        growth = self.growth
        if growth is None:
            yield self.schema
            return
        check_growth(self.model, growth)
        if isinstance(self.privacy, TreeNoise):
            raise ValueError(
                'growth must be absent with privacy.mode = "ftrl": a tree sums noise of one '
                'dimension from its first round on; set privacy.mode = "central"'
            )
        if self.privacy.layer_ratios:
            raise ValueError(
                "privacy.layer_ratios must be empty with growth: they are one a tensor, and every "
                "stage has more; without them the clip is shared out alike"
            )
        for stage in range(1, growth.stage_count + 1):
            yield self.schema_at(stage)

    @property
    def travel(self) -> str:
        """Return the personalisation method and what travels under it, in words."""
        return describe_travel(self.personalisation, self.schema, self.compression)

    @property
    def growth_told(self) -> str:
        """Return the stages of growth and what they save, in words; empty where nothing grows."""
        return "" if self.growth is None else describe_growth(self.growth, self.model, self.schema)

    @property
    def word_list(self) -> WordListSettings:
        """Return which word list is used, where there must be one.

        Raises:
            ValueError: If the task has no words.
        """
        if self.vocabulary is None:
            raise ValueError(f'task must be one with words here, got "{self.task}"')
        return self.vocabulary

    def load_vocabulary(self) -> Vocabulary | None:
        """Return the word list, or None where the task has no words.

        Raises:
            OSError: If the file cannot be read.
            ValueError: If the file is no word list, or has another size than the settings.
        """
        return None if self.vocabulary is None else self.vocabulary.load()

    def _check_public_text(self) -> None:
        if self.evaluation.public_text is not None and self.vocabulary is None:
            raise ValueError(
                f'evaluation.kind = "public" scores words, but task "{self.task}" has none; '
                'use "devices" or "none"'
            )
        whole = all(spec.role in RELEASED for spec in self.schema.tensors)
        if self.evaluation.public_text is not None and not whole:
            raise ValueError(
                'evaluation.kind = "public" scores one model for everyone, which nobody has under '
                f'personalisation.method = "{self.personalisation.method}"; use "devices" or "none"'
            )


def read_config(path: Path) -> FederationConfig:
    """Read a federation's file; paths in it become relative to the file's folder.

    Raises:
        ConfigError: If the file cannot be read or its settings cannot be used.
    """
    return rooted(parse_config(settings_text(path), str(path)), path.parent.absolute())


def settings_text(path: Path) -> str:
    """Return the text of a file of settings.

    Raises:
        ConfigError: If it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None


def parse_config(text: str, source: str) -> FederationConfig:
    """Decode TOML text, strictly.

    Args:
        text: The TOML.
        source: Name of the file for error messages.

    Raises:
        ConfigError: If the text is no TOML or its settings cannot be used.
    """
    try:
        config = decoded(tomllib.loads(text), FederationConfig)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is no TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: {error}") from None
    try:
        check_deployable(config.personalisation)
    except ValueError as error:
        raise ConfigError(f"{source}: {error} - at `$.personalisation`") from None
    return config


def preset_names() -> list[str]:
    """Return the presets that ship with sotto, sorted."""
    presets = resources.files("server").joinpath("presets")
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in presets.iterdir()
        if entry.name.endswith(".toml")
    )


def preset_text(name: str) -> str:
    """Return a preset as TOML text, comments included.

    Raises:
        ConfigError: If there is no such preset; lists those there are.
    """
    if name not in preset_names():
        raise ConfigError(f"preset must be one of {', '.join(preset_names())}, got {name!r}")
    preset = resources.files("server").joinpath("presets", f"{name}.toml")
    return preset.read_text(encoding="utf-8")


def make_plan(
    config: FederationConfig,
    run: str,
    kind: PlanKind = "train",
    *,
    round_number: int = 1,
    cohort_size: int | None = None,
    vocabulary: Vocabulary | None = None,
) -> Plan:
    """Return the plan that devices get.

    Args:
        config: The federation.
        run: Identifier of the run, 32 hex digits.
        kind: What devices do.
        round_number: Round, from 1, which decides how many layers the model has where it grows.
        cohort_size: Size of the round's cohort; only needed where ``participation_rate`` draws it.
        vocabulary: The word list if it is loaded already; else it is loaded here, if there is one.

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
        seed=config.seed,
        embedding_fit=_fit_of(config, kind),
        growth=growth,
        growth_stage=None if growth is None else growth.stage_count,
        compression=config.compression,
        evaluation_noise=config.evaluation.noise if kind == "evaluate" else None,
    )
    return plan_of_round(whole, round_number)


def _fit_of(config: FederationConfig, kind: PlanKind) -> EmbeddingFitSettings | None:
    if kind not in FITS:
        return None
    if config.fitting is None:
        raise ValueError("fitting must be set for devices to fit a model of their own")
    return config.fitting.fit


def _described(
    settings: WordListSettings | None, words: Vocabulary | None
) -> VocabularySettings | None:
    return None if settings is None or words is None else settings.describe(words)


def rooted(config: FederationConfig, folder: Path) -> FederationConfig:
    """Return the settings with every path in them absolute, as it lies in ``folder``."""
    words, evaluation = config.vocabulary, config.evaluation
    if words is not None and words.path is not None:
        words = msgspec.structs.replace(words, path=str(folder / words.path))
    if evaluation.public_text is not None:
        text = str(folder / evaluation.public_text)
        evaluation = msgspec.structs.replace(evaluation, public_text=text)
    start = config.start_from
    return msgspec.structs.replace(
        config,
        start_from=None if start is None else str(folder / start),
        vocabulary=words,
        evaluation=evaluation,
        store=config.store.rooted(folder),
    )
