"""The settings of a federation side by side; ``server.config.rules`` checks them together."""

import hashlib

import msgspec

from models.plan.frozen import freeze
from models.plan.growth_traffic import describe_growth
from models.plan.plan import TrainingSettings
from models.plan.roles import assign_roles
from models.plan.travel import describe_travel
from models.settings.compression import CompressionSettings
from models.settings.growing_layers import model_at_stage
from models.settings.growth import GrowthSettings
from models.settings.model import ModelSettings, schema_of
from models.settings.personalisation import GlobalSettings, PersonalisationSettings
from models.text.vocabulary import Vocabulary
from models.vector.schema import Schema
from privacy.noise.settings import PrivacySettings
from server.aggregation.screening_settings import ScreeningSettings
from server.aggregation.settings import AggregationSettings
from server.config.convergence import ConvergenceSettings
from server.config.evaluation import EvaluationSettings
from server.config.fitting import FittingSettings
from server.config.helper import HelperSettings
from server.config.listen import ListenSettings
from server.config.rounds import RoundSettings
from server.config.store import StoreSettings
from server.config.word_list import WordListSettings


class FederationSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a federation's operator decides.

    Attributes:
        plugins: Packages with models, tasks, rules or methods of their own that this process loads,
            each with its version, such as ``spam-filter==1.0.0``. ``family``, ``rule`` or
            ``method = "plugin"`` asks for a part of one, by its ``name``.
        seed: Seed of the run's initial parameters and of the order of local data, nothing secret.
        task: Name in the task registry.
        model: The whole model, as after the last stage of growth; ``family`` picks the kind.
        growth: When the model gets its layers; absent gives it all of them from the first round.
        start_from: Model of the same sizes and word list with whose parameters the run starts: a
            shipped start's name (``english``, ``voices``), a packed file, or the folder of a public
            release. Absent, or ``none``, draws them from the seed.
        vocabulary: The word list; absent for a task without words.
        personalisation: Method, and with it the part that each device keeps for itself.
        privacy: Noise mode and clipping; ``mode`` picks the kind.
        aggregation: How updates become one; ``rule`` picks the kind.
        compression: The form in which updates travel; absent for plain float32. May change between
            two rounds.
        screening: Which updates are rejected before the sum.
        convergence: When the run stops before its cap; absent means never.
        fitting: How devices outside all rounds get a model of their own; absent means with their
            first round.
        helper: The second party of masked sums; a coordinator of mode ``masked`` needs it.
    """

    plugins: tuple[str, ...] = ()
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
    helper: HelperSettings | None = None
    listen: ListenSettings = ListenSettings()
    store: StoreSettings = StoreSettings()

    @property
    def schema(self) -> Schema:
        """Return every tensor of the whole model, with its role."""
        return self.schema_at(None)

    @property
    def run_digest(self) -> bytes:
        """Return a digest of what is fixed for a run: the schema, and when the model grows."""
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
        """Return the word list's settings.

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
