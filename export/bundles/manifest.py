"""Say what a bundle holds: which model, from which round, under which guarantee, file by file.

How a manifest is written and read is in `export.bundles.manifest_entries`; a voice's is another
(`export.bundles.speech_manifest`).
"""

import math
from collections.abc import Collection
from typing import Literal

import msgspec

from export.bundles.manifest_entries import FileDigest, ManifestBase, decode_versioned
from export.faces.family import Precision
from models.plan.release_record import Metric
from models.settings.model import ModelSettings, schema_of
from models.vector.schema import Schema

FORMAT_VERSION = 3
_READABLE_VERSIONS = (1, 2, FORMAT_VERSION)
MODEL_FILE = "model.onnx"
VOCABULARY_FILE = "vocabulary.txt"
CONTENT_FILES = (MODEL_FILE, VOCABULARY_FILE)

PROMISING_NOTHING = ("none", "paper", "paper-server")
"""The modes of `privacy.noise.settings` without a guarantee; what serves need not load them all."""

Kind = Literal["keyboard", "image"]
_FILES: dict[Kind, tuple[str, ...]] = {"keyboard": CONTENT_FILES, "image": (MODEL_FILE,)}

_HEX_DIGEST = 64
# A graph is its weights and a few kilobytes of nodes and names.
_GRAPH_ALLOWANCE_BYTES = 1 << 20


class PrivacyStatement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say what training promised to the people whose text the model saw, and what it has spent.

    Attributes:
        mode: Name of the noise mode, such as ``none`` or ``paper``.
        guarantee: The promise for the whole run in words, as the release states it.
        epsilon: ε at ``delta`` of all releases up to this one; None where nothing is promised, and
            where the release or an older bundle does not say.
        delta: δ, the chance that the bound on ε fails; None without one.
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
        """Say what the releases up to that of a round have spent, for people."""
        if self.epsilon is not None:
            return f"epsilon {self.epsilon:.4g} at delta {self.delta:g}, after round {round_number}"
        return "none promised" if self.mode in PROMISING_NOTHING else "not said"


class ParityRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say how the graph compared with torch when it was exported.

    Attributes:
        shapes: The ``(batch, time)`` shapes compared; of images ``(batch, height)``.
        largest_difference: Largest difference of two log-probabilities, in nats. Of a rounded graph
            it is that of exact arithmetic with the rounded weights.
        rounding_difference: The same as a rounded graph ships, its activations rounded too.
    """

    shapes: tuple[tuple[int, int], ...]
    largest_difference: float
    rounding_difference: float = 0.0


class PersonalPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say which tensors of the model are each person's own, and inputs of the graph.

    Attributes:
        method: Personalisation method of the run.
        tensors: Their state-dict names, in schema order.
    """

    method: str
    tensors: tuple[str, ...]


class Manifest(ManifestBase, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Describe a bundle.

    Attributes:
        format_version: Version of this struct and of the files beside it; 1 knew no personal part,
            1 and 2 not what privacy was spent.
        kind: What the bundle predicts.
        files: Digest of every content file, by name.
        model: Settings of the model; its schema follows from them.
        schema_sha256: Hex digest of that schema.
        parameters_sha256: Hex digest of the parameters that the graph computes with, as
            little-endian float32 in schema order.
        vocabulary_sha256: Hex digest of the word list, as the plan of the round gives it; empty
            without words.
        run: Identifier of the run, 32 hex digits.
        round_number: Round whose release this is.
        metrics: Figures of the release, by name.
        privacy: What training promised, and what it has spent.
        languages: BCP 47 tags of the word list; empty if nobody said.
        opset: ONNX operator set of the graph.
        parity: The comparison with torch at export.
        personal: What the graph takes of each person; None of a model that is whole.
        client: Whose whole model it is; None if it is everyone's.
        precision: How the graph stores and multiplies matrices.
        rounded_from: Hex digest of the float32 parameters that were rounded; None if none were.
    """

    format_version: int = FORMAT_VERSION
    kind: Kind = "keyboard"
    files: dict[str, FileDigest]
    model: ModelSettings
    schema_sha256: str
    parameters_sha256: str
    vocabulary_sha256: str
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

    def __post_init__(self) -> None:
        expected = _FILES[self.kind]
        if sorted(self.files) != sorted(expected):
            raise ValueError(f"files must be {list(expected)}, got {sorted(self.files)}")
        schema = schema_of(self.model)
        if self.schema_sha256 != schema.sha256.hex():
            raise ValueError(
                f"schema_sha256 must be {schema.sha256.hex()}, the schema of the model's "
                f"settings, got {self.schema_sha256[:_HEX_DIGEST]}"
            )
        check_rounding(self.precision, self.rounded_from)
        # Weights kept outside the graph would escape its hash, so they must be in it.
        most_bytes = self.held_schema.payload_bytes + _GRAPH_ALLOWANCE_BYTES
        held_bytes = self.held_schema.payload_bytes
        if self.precision == "int8":
            held_bytes = self.held_schema.element_count
        if not held_bytes <= self.files[MODEL_FILE].size_bytes <= most_bytes:
            raise ValueError(
                f"{MODEL_FILE} must hold {held_bytes} bytes of weights and at most "
                f"{most_bytes - held_bytes} more, got {self.files[MODEL_FILE].size_bytes}"
            )

    @property
    def personal_schema(self) -> Schema:
        """Return the tensors that the graph takes of each person, without roles."""
        return personal_schema(self.model, () if self.personal is None else self.personal.tensors)

    @property
    def held_schema(self) -> Schema:
        """Return the tensors that the graph holds."""
        return held_schema(self.model, self.personal_schema.slices)


def check_rounding(precision: Precision, rounded_from: str | None) -> None:
    """Check that a rounded model, and no other, says what was rounded.

    Raises:
        ValueError: If it does not.
    """
    if (precision == "float32") != (rounded_from is None):
        raise ValueError(
            f"rounded_from belongs to a rounded model, got precision {precision} and "
            f"rounded_from {rounded_from}"
        )


def personal_schema(model: ModelSettings, names: Collection[str]) -> Schema:
    """Return some tensors of a model, in schema order and without roles.

    Raises:
        ValueError: If the model lacks one of them.
    """
    tensors = schema_of(model).tensors
    foreign = sorted(set(names) - {spec.name for spec in tensors})
    if foreign:
        raise ValueError(f"personal tensors must be the model's, got {foreign[:3]}")
    return Schema(tuple(spec for spec in tensors if spec.name in names))


def held_schema(model: ModelSettings, personal: Collection[str]) -> Schema:
    """Return all other tensors of a model, in schema order."""
    return Schema(tuple(spec for spec in schema_of(model).tensors if spec.name not in personal))


def decode_manifest(encoded: bytes) -> Manifest:
    """Decode a manifest, strictly.

    Raises:
        BundleError: If the bytes are no manifest of this version; says which side is older.
    """
    return decode_versioned(
        encoded, Manifest, readable=_READABLE_VERSIONS, what="bundle", older="the bundle"
    )
