"""The plan of a round: the coordinator's request to a device, decoded by both ends.

A plan travels as JSON bytes inside the work order. Decoding is strict: an unknown key or a float
for an integer is refused with its path, so two versions never misread each other.
"""

from typing import Literal, TypeVar

import msgspec

from models.plan.bounds import (
    MOST_PLAN_BYTES,
    check_drawn_steps,
    check_elements,
    check_numbers,
    check_step,
)
from models.plan.frozen import check_frozen, freeze
from models.plan.plugins import check_plugins
from models.plan.private_examples import check_private_examples
from models.plan.roles import assign_roles, check_local_epochs, check_task
from models.plan.word_rules import check_words
from models.settings.bounds import (
    check_at_least,
    check_below_one,
    check_hex,
    check_not_negative,
    check_positive,
)
from models.settings.compression import CompressionSettings, check_compression
from models.settings.growing_layers import check_stage_of
from models.settings.growth import GrowthSettings
from models.settings.hypernetwork import (
    EmbeddingFitSettings,
    HypernetworkSettings,
    embedding_schema,
    hypernetwork_schema,
)
from models.settings.layer_groups import check_layer_groups
from models.settings.learning_rate import LearningRateDecay
from models.settings.masked_sums import check_masked, check_weighing
from models.settings.model import ModelSettings, schema_of
from models.settings.personalisation import (
    FedTpSettings,
    GlobalSettings,
    PersonalisationSettings,
    PFedHnSettings,
    PluginMethod,
)
from models.settings.weighing import Weighing
from models.vector.schema import RECEIVED, RELEASED, SENT, Role, Schema, TensorSpec
from privacy.example_level.settings import LOCAL_EPOCHS, ExamplePrivacySettings
from privacy.foundation.strict_json import decode_json
from privacy.noise.evaluation_settings import EvaluationNoise
from privacy.noise.masked_settings import MaskedNoise
from privacy.noise.settings import PaperNoise, PrivacySettings
from protos.version import PLAN_VERSION

PlanKind = Literal["train", "evaluate", "fit_embedding", "fit_personal"]

FITS: tuple[PlanKind, ...] = ("fit_embedding", "fit_personal")
"""Kinds for a device that took part in no round, to get a model of its own."""


_Read = TypeVar("_Read")


class _Versioned(msgspec.Struct):
    version: int


class PlanError(ValueError):
    """Raised when plan bytes cannot be understood; the text says what and where."""


class VocabularySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The word list that the model's rows stand for.

    Attributes:
        name: ``english-10k`` for the list shipped with sotto, else a list the coordinator serves.
        size: Number of words, ``<unk>`` and ``<eos>`` included.
        sha256: Hex digest of the list, one word a line, cut to ``size``.
        languages: BCP 47 tags of its words, from a coordinator that says them.
    """

    name: str
    size: int
    sha256: str
    # Unset is not written: plans without it are the bytes that they were.
    languages: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        check_hex(self, 64, "sha256")


class TrainingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a device trains in one round.

    Attributes:
        optimiser: ``sgd`` or ``adam``.
        learning_rate: Step size of the optimiser; with ``decay`` that of the first round.
        decay: How it falls from round to round; absent keeps it. Fits of new devices and
            fine-tuning have the first round's step size throughout.
        momentum: SGD's momentum in [0, 1); not used by Adam.
        weight_decay: L2 penalty's coefficient.
        gradient_clipping_norm: Largest L2 norm of a gradient step over all parameters; absent means
            none.
        local_epochs: Passes over the device's own data; E.
        batch_size: Parallel text streams; B.
        bptt_steps: Words in one back-propagation window.
        optimiser_state: ``fresh`` each round, or ``kept`` on the device between rounds.
        precision: ``float32`` (bit-identical between simulation and deployment), or ``bfloat16``
            autocast if the device gains from it.
        example_cap: Largest example count (target tokens) a client is weighted by.
        example_privacy: Hides each sentence of a person in their own update (DP-SGD); absent means
            off. Then an epoch draws sentences instead of windows, and the noised sum of a step's
            gradients is divided by ``batch_size``.
        frozen: Tensors, or layers of which every tensor is meant, that stay as the run started:
            never trained, sent, clipped or noised.
    """

    optimiser: Literal["sgd", "adam"] = "sgd"
    learning_rate: float
    decay: LearningRateDecay | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    gradient_clipping_norm: float | None = None
    local_epochs: int = LOCAL_EPOCHS
    batch_size: int
    bptt_steps: int = 20
    optimiser_state: Literal["fresh", "kept"] = "fresh"
    precision: Literal["float32", "bfloat16"] = "float32"
    example_cap: int = 1_000_000
    example_privacy: ExamplePrivacySettings | None = None
    frozen: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_at_least(self, 1, "local_epochs", "batch_size", "bptt_steps", "example_cap")
        check_positive(self, "learning_rate", "gradient_clipping_norm")
        check_below_one(self, "momentum")
        check_not_negative(self, "weight_decay")
        if self.example_privacy is not None:
            self._check_private_steps()

    def at_round(self, round_number: int) -> "TrainingSettings":
        """Return the settings with the step size of a round, from 1."""
        if self.decay is None:
            return self
        rate = self.learning_rate * self.decay.share(round_number)
        return msgspec.structs.replace(self, learning_rate=rate)

    def _check_private_steps(self) -> None:
        if self.precision != "float32":
            raise ValueError(
                f"precision must be float32 with example_privacy, got {self.precision}: the bound "
                "on an example's gradient counts float32's rounding"
            )
        if self.gradient_clipping_norm is not None:
            raise ValueError(
                "gradient_clipping_norm must be absent with example_privacy: it would clip mostly "
                "noise; example_privacy.clipping_norm clips each example"
            )
        if self.frozen:
            raise ValueError(
                f"frozen must be empty with example_privacy, got {list(self.frozen)}: a norm over "
                "some uses of a parameter is no bound"
            )


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The work of a device in one round.

    Attributes:
        version: Version of this struct; both ends must know it.
        run: Identifier of the run, 32 hex digits.
        kind: ``train`` sends back an update, ``evaluate`` sends back counts. A device that took
            part in no round gets ``fit_embedding``, which sends back its embedding, or
            ``fit_personal``, which sends nothing: the device trains the tensors that it keeps to
            itself.
        task: Name in the task registry, such as ``next_word``.
        model: The model's settings; its schema follows from them.
        schema_sha256: Hex digest of ``plan_schema``, roles included, from the coordinator.
        vocabulary: The word list; None for a task without words.
        training: Local training.
        personalisation: Roles of the tensors, and what else the method does.
        privacy: Noise mode and clipping.
        cohort_size: Clients the round is drawn for, before over-selection.
        quorum: Fewest updates with which the round may close; absent where there is no such number,
            or from a coordinator that did not say it.
        seed: Seed of the run; with round and client name it seeds the order of local data.
        embedding_fit: How to fit; only for ``fit_embedding`` and ``fit_personal``.
        growth: When the model gets which layers; absent for one that does not grow.
        growth_stage: The stage of ``model``, from 1; absent without growth.
        compression: In which form updates travel; absent for float32 as they are.
        plugins: Plugins of model, task and method, each with its version; unset without any.
        evaluation_noise: How the coordinator limits and noises counts; only for ``evaluate``.
        weighing: How a device weighs its own update; only in mode ``masked``, and unset in others.
    """

    version: int = PLAN_VERSION
    run: str
    kind: PlanKind = "train"
    task: str = "next_word"
    model: ModelSettings
    schema_sha256: str
    vocabulary: VocabularySettings | None = None
    training: TrainingSettings
    personalisation: PersonalisationSettings = GlobalSettings()
    privacy: PrivacySettings
    cohort_size: int
    quorum: int | None = None
    seed: int
    embedding_fit: EmbeddingFitSettings | None = None
    growth: GrowthSettings | None = None
    growth_stage: int | None = None
    compression: CompressionSettings | None = None
    evaluation_noise: EvaluationNoise | None = None
    # Unset is not written: plans without them are the bytes that they were.
    weighing: Weighing | msgspec.UnsetType = msgspec.UNSET
    plugins: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        check_hex(self, 32, "run")
        check_hex(self, 64, "schema_sha256")
        check_plugins(self.named_plugins, self.model, self.task, self.personalisation)
        self._check_bounds()
        if isinstance(self.personalisation, PluginMethod):
            assign_roles(self.personalisation, schema_of(self.model))
        if self.training.example_privacy is not None:
            check_private_examples(self.task, self.model, self.personalisation)
        check_stage_of(self.model, self.growth, self.growth_stage)
        check_words(
            self.task, self.model, None if self.vocabulary is None else self.vocabulary.size
        )
        if self.compression is not None:
            check_compression(self.compression, self.privacy)
        check_weighing(self.privacy, self.weighing)
        if isinstance(self.privacy, MaskedNoise):
            hides_examples = self.training.example_privacy is not None
            check_masked(self.personalisation, self.compression, hides_examples=hides_examples)
        check_task(self.personalisation, self.task)
        check_local_epochs(self.personalisation, self.training.local_epochs)
        check_frozen(self.personalisation, schema_of(self.model), self.training.frozen)
        if self.compression is not None:
            check_layer_groups(
                self.compression,
                plan_schema(self).with_roles(*SENT),
                personalisation=self.personalisation,
                privacy=self.privacy,
                keeps_optimiser=self.training.optimiser_state == "kept",
                hides_examples=self.training.example_privacy is not None,
            )
        if (self.kind in FITS) != (self.embedding_fit is not None):
            raise ValueError(
                f"embedding_fit belongs to kinds {' and '.join(FITS)}; "
                f'got kind "{self.kind}" and embedding_fit {self.embedding_fit}'
            )
        if self.evaluation_noise is not None and self.kind != "evaluate":
            raise ValueError(f'evaluation_noise belongs to kind "evaluate", got "{self.kind}"')

    def _check_bounds(self) -> None:
        """Check first what else would be multiplied out, or counted up to."""
        check_numbers(self)
        training, method = self.training, self.personalisation
        check_step(batch_size=training.batch_size, bptt_steps=training.bptt_steps)
        if training.example_privacy is not None:
            rate = training.example_privacy.sampling_rate
            check_drawn_steps(local_epochs=training.local_epochs, sampling_rate=rate)
        whole = schema_of(self.model)
        check_elements(whole, "model")
        if self.kind == "fit_embedding" and isinstance(method, FedTpSettings | PFedHnSettings):
            generated = assign_roles(method, whole).with_roles(Role.GENERATED)
            check_elements(hypernetwork_schema(method.hypernetwork, generated), "hypernetwork")

    @property
    def named_plugins(self) -> tuple[str, ...]:
        """Return the plugins that it needs, each with its version."""
        return () if self.plugins is msgspec.UNSET else self.plugins

    @property
    def sends_masked(self) -> bool:
        """Return whether what it asks for travels under a mask; fits and counts have none."""
        return self.kind == "train" and isinstance(self.privacy, MaskedNoise)

    def encode(self) -> bytes:
        """Return the plan as JSON bytes, equal for equal plans."""
        return msgspec.json.encode(self, order="deterministic")


def decode_plan(encoded: bytes) -> Plan:
    """Decode a plan, strictly; a ``PlanError`` of another version says which side is older."""
    version = _decoded(encoded, _Versioned).version
    if version != PLAN_VERSION:
        older = "this device" if version > PLAN_VERSION else "the coordinator"
        raise PlanError(
            f"plan version must be {PLAN_VERSION}, got {version}; {older} is older: update it"
        )
    return _decoded(encoded, Plan)


def _decoded(encoded: bytes, wanted: type[_Read]) -> _Read:
    try:
        return decode_json(encoded, wanted, at_most=MOST_PLAN_BYTES)
    except (msgspec.DecodeError, ArithmeticError) as error:
        # Beside what is no plan: numbers of which a rule makes one beyond any float.
        raise PlanError(f"plan cannot be read: {error}") from None


def plan_schema(plan: Plan) -> Schema:
    """Return every tensor of the plan's model, with its role."""
    return freeze(assign_roles(plan.personalisation, schema_of(plan.model)), plan.training.frozen)


def released_schema(plan: Plan) -> Schema:
    """Return the tensors that a release holds: shared and frozen ones; there may be none."""
    return plan_schema(plan).with_roles(*RELEASED)


def download_schema(plan: Plan) -> Schema:
    """Return the tensors that a client receives: the released ones, and those made for it."""
    return plan_schema(plan).with_roles(*RECEIVED)


def hypernetwork_of(plan: Plan) -> HypernetworkSettings:
    """Return the hypernetwork's settings, or raise ``ValueError`` if the method has none."""
    if not isinstance(plan.personalisation, FedTpSettings | PFedHnSettings):
        raise ValueError(f'method "{plan.personalisation.method}" has no hypernetwork')
    return plan.personalisation.hypernetwork


def upload_schema(plan: Plan) -> Schema:
    """Return the tensors a client sends back.

    They are the trained ones. Mode ``paper`` with ``score = "clean"`` adds ``clean_norms``, the L2
    norm of each before noise, and adaptive clipping adds ``fitted``: 1 if nothing had to be
    clipped, else 0. Kind ``fit_embedding`` sends the embedding alone, kind ``fit_personal``
    nothing.
    """
    if plan.kind == "fit_embedding":
        return embedding_schema(hypernetwork_of(plan))
    if plan.kind == "fit_personal":
        return Schema(())
    schema = plan_schema(plan).with_roles(*SENT)
    if isinstance(plan.privacy, PaperNoise) and plan.privacy.score == "clean":
        count = len(schema.tensors)
        norms = TensorSpec(name="clean_norms", shape=(count,), layer="clean_norms")
        return Schema((*schema.tensors, norms))
    if plan.privacy.tells_fit:
        return Schema((*schema.tensors, TensorSpec(name="fitted", shape=(1,), layer="fitted")))
    return schema
