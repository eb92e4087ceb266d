"""Manifests of bundles: which model, from which round, under which guarantee, file by file.

`export.bundles.manifest_entries` writes and reads them. Keyboards and classifiers have the one
here; a voice's (`export.bundles.speech_manifest`) has the same base.
"""

import math
from collections.abc import Collection, Sequence
from typing import ClassVar, Literal, Self

import msgspec

from export.bundles.manifest_entries import FileDigest, ManifestBase, decode_versioned
from export.faces.family import Precision
from export.faces.speech import VOICE_FILES
from models.plan.release_record import Metric
from models.settings.model import ModelSettings, schema_of
from models.vector.schema import Schema

MODEL_FILE = "model.onnx"
VOCABULARY_FILE = "vocabulary.txt"
CONTENT_FILES = (MODEL_FILE, VOCABULARY_FILE)

PROMISING_NOTHING = ("none", "paper", "paper-server")
"""The modes of `privacy.noise.settings` without a guarantee; what serves need not load them all."""

Kind = Literal["keyboard", "image"]
_FILES = {"keyboard": CONTENT_FILES, "image": (MODEL_FILE,), "speech": VOICE_FILES}

# A graph is its weights and a few kilobytes of nodes and names.
_GRAPH_ALLOWANCE_BYTES = 1 << 20
_NUMBER_BYTES = 4
_AXES = 2


class PrivacyStatement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The promise of training to the people whose text the model saw, and what it has spent.

    Attributes:
        mode: Name of the noise mode, such as ``none`` or ``paper``.
        guarantee: The promise for the whole run in words, as the release states it.
        epsilon: ε at ``delta`` of all releases up to this one; None if nothing is promised, or the
            release or an older bundle does not say.
        delta: δ, the chance that the bound on ε fails.
    """

    mode: str
    guarantee: str
    epsilon: float | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        if (self.epsilon is None) != (self.delta is None):
            raise ValueError(
                f"epsilon and delta belong together, got {self.epsilon} and {self.delta}"
            )
        if self.epsilon is not None and not 0 <= self.epsilon < math.inf:
            raise ValueError(f"epsilon must be >= 0 and finite, got {self.epsilon}")
        if self.delta is not None and not 0 < self.delta < 1:
            raise ValueError(f"delta must be > 0 and < 1, got {self.delta}")

    def spent_after(self, round_number: int) -> str:
        """Describe for people what the releases up to a round have spent."""
        if self.epsilon is not None:
            return f"epsilon {self.epsilon:.4g} at delta {self.delta:g}, after round {round_number}"
        return "none promised" if self.mode in PROMISING_NOTHING else "not said"


class ParityRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Comparison of graphs with torch at their export.

    Attributes:
        shapes: Shapes compared: of words ``(batch, time)``, of images ``(batch, height)``, of a
            voice texts, characters and steps, of a vocoder spectrograms and frames.
        largest_difference: Largest difference of two log-probabilities, in nats; of speech, over
            the
            largest value if that is above 1. Rounded graphs are computed exactly for it.
        rounding_difference: The same as rounded graphs ship, their activations rounded too.
    """

    shapes: tuple[tuple[int, ...], ...]
    largest_difference: float
    rounding_difference: float = 0.0


class PersonalPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tensors that are each person's own, and inputs of the graph.

    Attributes:
        method: Personalisation method of the run.
        tensors: Their state-dict names, in schema order.
    """

    method: str
    tensors: tuple[str, ...]


class BundleManifest(ManifestBase, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The manifest of every bundle: what it says of its model.

    Attributes:
        format_version: Version of the struct and of the files beside it; 1 lacked a keyboard's
            personal part, and all before the present one the privacy that was spent.
        files: Digest of every content file, by name.
        model: Settings of the model; its schema follows from them.
        schema_sha256: Hex digest of that schema.
        parameters_sha256: Hex digest of the parameters that the model's graphs compute with, as
            little-endian float32 in schema order.
        run: Identifier of the run, 32 hex digits.
        metrics: Figures of the release, by name.
        privacy: The promise of training, and what it has spent.
        languages: BCP 47 tags of the words; empty if unknown.
        personal: The tensors that the graphs take of each person; None of a model that is whole.
        client: The person whose whole model it is; None if it is everyone's.
        precision: How the model's graphs store and multiply matrices.
        rounded_from: Hex digest of the float32 parameters that were rounded; None if none were.
        newest_version: Version that is written today; all before it are read.
        version_of: Name of the version, for errors.
        own_field: A field of one struct alone, and the one that it is written after, so that a
            bundle's manifest is the same bytes for ever.
    """

    newest_version: ClassVar[int]
    version_of: ClassVar[str]
    own_field: ClassVar[tuple[str, str]]

    format_version: int
    kind: str
    files: dict[str, FileDigest]
    model: ModelSettings
    schema_sha256: str
    parameters_sha256: str
    run: str
    round_number: int = msgspec.field(name="round")
    metrics: dict[str, Metric]
    privacy: PrivacyStatement
    languages: tuple[str, ...]
    opset: int
    parity: ParityRecord
    personal: PersonalPart | None = None
    client: str | None = None
    precision: Precision = "float32"
    rounded_from: str | None = None

    def encode(self) -> bytes:
        """Return the manifest as indented JSON, equal for equal manifests."""
        fields = msgspec.json.decode(super().encode(), type=dict[str, msgspec.Raw])
        own, after = self.own_field
        moved = {own: fields.pop(own)}
        ordered: dict[str, msgspec.Raw] = {}
        for name, value in fields.items():
            ordered |= {name: value} | (moved if name == after else {})
        return msgspec.json.format(msgspec.json.encode(ordered)) + b"\n"

    @classmethod
    def decode(cls, encoded: bytes) -> Self:
        """Decode a manifest strictly; BundleError, saying which side is older, if it is none."""
        return decode_versioned(
            encoded,
            cls,
            readable=range(1, cls.newest_version + 1),
            what=cls.version_of,
            older="the bundle",
        )

    @property
    def content_files(self) -> Sequence[str]:
        """Return the files beside the manifest."""
        return _FILES[self.kind]

    @property
    def personal_schema(self) -> Schema:
        """Return the tensors that the graphs take of each person, without roles."""
        return personal_schema(self.model, () if self.personal is None else self.personal.tensors)

    @property
    def held_schema(self) -> Schema:
        """Return the tensors that the model's graphs hold."""
        return held_schema(self.model, self.personal_schema.slices)

    def check_model(self) -> None:
        """Raise ValueError unless files, schema and a rounded model's origin are the model's."""
        if sorted(self.files) != sorted(self.content_files):
            raise ValueError(f"files must be {list(self.content_files)}, got {sorted(self.files)}")
        expected = schema_of(self.model).sha256.hex()
        if self.schema_sha256 != expected:
            raise ValueError(
                f"schema_sha256 must be {expected}, the schema of the model's settings, got "
                f"{self.schema_sha256[: len(expected)]}"
            )
        if (self.precision == "float32") != (self.rounded_from is None):
            raise ValueError(
                f"rounded_from belongs to a rounded model, got precision {self.precision} and "
                f"rounded_from {self.rounded_from}"
            )

    def check_size(self, name: str, elements: int, *, is_rounded: bool, tables: int = 0) -> None:
        """Check that a graph has room for its weights: elsewhere they would escape its hash.

        Args:
            is_rounded: Whether they are of one byte each.
            tables: Numbers beside them that follow from the settings.

        Raises:
            ValueError: If it has no room.
        """
        least = elements if is_rounded else elements * _NUMBER_BYTES
        most = (elements + tables) * _NUMBER_BYTES + _GRAPH_ALLOWANCE_BYTES
        if not least <= self.files[name].size_bytes <= most:
            raise ValueError(
                f"{name} must hold {least} bytes of weights and at most {most - least} more, got "
                f"{self.files[name].size_bytes}"
            )


class Manifest(BundleManifest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Manifest of a keyboard or a classifier.

    ``vocabulary_sha256`` is the hex digest of the word list in the round's plan; empty without
    words.
    """

    newest_version: ClassVar[int] = 3
    version_of: ClassVar[str] = "bundle"
    own_field: ClassVar[tuple[str, str]] = ("vocabulary_sha256", "parameters_sha256")

    format_version: int = newest_version
    kind: Kind = "keyboard"
    vocabulary_sha256: str

    def __post_init__(self) -> None:
        self.check_model()
        if any(len(shape) != _AXES for shape in self.parity.shapes):
            raise ValueError(f"shapes must have {_AXES} axes each, got {self.parity.shapes}")
        elements = self.held_schema.element_count
        self.check_size(MODEL_FILE, elements, is_rounded=self.precision == "int8")


def personal_schema(model: ModelSettings, names: Collection[str]) -> Schema:
    """Return tensors of a model in schema order, without roles; ValueError if it lacks one."""
    tensors = schema_of(model).tensors
    foreign = sorted(set(names) - {spec.name for spec in tensors})
    if foreign:
        raise ValueError(f"personal tensors must be the model's, got {foreign[:3]}")
    return Schema(tuple(spec for spec in tensors if spec.name in names))


def held_schema(model: ModelSettings, personal: Collection[str]) -> Schema:
    """Return all other tensors of a model, in schema order."""
    return Schema(tuple(spec for spec in schema_of(model).tensors if spec.name not in personal))
