"""Say what a speech bundle holds: which voice, from which round, and which vocoder, file by file.

The manifest is JSON and is decoded strictly, as a keyboard's (`export.bundles.manifest`).
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from export.bundles.manifest import (
    PersonalPart,
    PrivacyStatement,
    check_rounding,
    held_schema,
    personal_schema,
)
from export.bundles.manifest_entries import FileDigest, ManifestBase, decode_versioned
from export.faces.family import Precision
from export.faces.speech import (
    DECODER_FILE,
    ENCODER_FILE,
    VOCODER_FILE,
    VOICE_FILES,
    file_of,
)
from models.plan.release_record import Metric
from models.settings.vocoder import VocoderSettings
from models.settings.voice import TransformerTtsSettings
from models.vector.schema import Schema

SPEECH_VERSION = 2
_READABLE_VERSIONS = (1, SPEECH_VERSION)
LANGUAGES = ("en",)
"""What `models.text.spoken_text` reads aloud."""

_GRAPH_ALLOWANCE_BYTES = 1 << 20
_NUMBER_BYTES = 4


class SpeechParity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say how graphs compared with torch when they were exported.

    Attributes:
        shapes: What was compared: texts, characters and steps; of a vocoder spectrograms, frames.
        largest_difference: Largest difference of two values, over the largest value if that is
            above 1. Of rounded graphs it is that of exact arithmetic with the rounded weights.
        rounding_difference: The same as rounded graphs ship, their activations rounded too.
    """

    shapes: tuple[tuple[int, ...], ...]
    largest_difference: float
    rounding_difference: float = 0.0


class VocoderPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say which vocoder makes the sound.

    Attributes:
        model: Its settings.
        parameters_sha256: Hex digest of its parameters, little-endian float32 in schema order.
        run: Identifier of the run that trained it, 32 hex digits.
        round_number: Round whose release it is.
        metrics: Figures of that release, by name.
        privacy: What that training promised, and what it has spent.
        parity: The comparison with torch at export.
    """

    model: VocoderSettings
    parameters_sha256: str
    run: str
    round_number: int = msgspec.field(name="round")
    metrics: dict[str, Metric]
    privacy: PrivacyStatement
    parity: SpeechParity


class SpeechManifest(ManifestBase, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Describe a speech bundle.

    Attributes:
        format_version: Version of this struct and of the files beside it; 1 did not know what
            privacy was spent.
        kind: What the bundle is.
        files: Digest of every content file, by name.
        model: Settings of the voice, its alphabet and its audio among them.
        schema_sha256: Hex digest of the schema that follows from them.
        parameters_sha256: Hex digest of the parameters that the graphs compute with, as
            little-endian float32 in schema order.
        run: Identifier of the run, 32 hex digits.
        round_number: Round whose release this is.
        growth_stage: Stage of a run that grows its layers; None without growth.
        metrics: Figures of the release, by name.
        privacy: What training promised, and what it has spent.
        languages: BCP 47 tags of the texts that it reads.
        opset: ONNX operator set of the graphs.
        parity: The comparison with torch at export.
        personal: What the graphs take of each person; None of a voice that is whole.
        client: Whose whole voice it is; None if it is everyone's.
        precision: How the voice's graphs store and multiply matrices.
        rounded_from: Hex digest of the float32 parameters that were rounded; None if none were.
        vocoder: What makes the sound; None where Griffin-Lim does.
    """

    format_version: int = SPEECH_VERSION
    kind: Literal["speech"] = "speech"
    files: dict[str, FileDigest]
    model: TransformerTtsSettings
    schema_sha256: str
    parameters_sha256: str
    run: str
    round_number: int = msgspec.field(name="round")
    growth_stage: int | None = None
    metrics: dict[str, Metric]
    privacy: PrivacyStatement
    languages: tuple[str, ...] = LANGUAGES
    opset: int
    parity: SpeechParity
    personal: PersonalPart | None = None
    client: str | None = None
    precision: Precision = "float32"
    rounded_from: str | None = None
    vocoder: VocoderPart | None = None

    def __post_init__(self) -> None:
        if sorted(self.files) != sorted(self.content_files):
            raise ValueError(f"files must be {list(self.content_files)}, got {sorted(self.files)}")
        expected = self.model.schema().sha256.hex()
        if self.schema_sha256 != expected:
            raise ValueError(
                f"schema_sha256 must be {expected}, the schema of the voice's settings, got "
                f"{self.schema_sha256[: len(expected)]}"
            )
        check_rounding(self.precision, self.rounded_from)
        if self.vocoder is not None and self.vocoder.model.mel != self.model.mel:
            raise ValueError("the vocoder's mel settings must be the voice's, got others")
        for name, digest in self.files.items():
            self._check_size(name, digest.size_bytes)

    @property
    def content_files(self) -> Sequence[str]:
        """Return the files beside the manifest."""
        return VOICE_FILES if self.vocoder is None else (*VOICE_FILES, VOCODER_FILE)

    @property
    def personal_schema(self) -> Schema:
        """Return the tensors that the graphs take of each person, without roles."""
        return personal_schema(self.model, () if self.personal is None else self.personal.tensors)

    @property
    def held_schema(self) -> Schema:
        """Return the tensors that the voice's graphs hold."""
        return held_schema(self.model, self.personal_schema.slices)

    def _check_size(self, name: str, size_bytes: int) -> None:
        """Check that a graph has room for its weights: elsewhere they would escape its hash."""
        elements = self._elements(name)
        is_rounded = self.precision == "int8" and name != VOCODER_FILE
        least = elements if is_rounded else elements * _NUMBER_BYTES
        most = (elements + self._table_elements(name)) * _NUMBER_BYTES + _GRAPH_ALLOWANCE_BYTES
        if not least <= size_bytes <= most:
            raise ValueError(
                f"{name} must hold {least} bytes of weights and at most {most - least} more, got "
                f"{size_bytes}"
            )

    def _elements(self, name: str) -> int:
        """Return the parameters in a file."""
        if name == VOCODER_FILE:
            return 0 if self.vocoder is None else self.vocoder.model.schema().element_count
        return Schema(
            tuple(spec for spec in self.held_schema.tensors if file_of(spec.name) == name)
        ).element_count

    def _table_elements(self, name: str) -> int:
        """Return the numbers in a file that follow from the settings."""
        mel, width = self.model.mel, self.model.hidden_size
        waves = (mel.mel_count + 2 * mel.bin_count) * mel.bin_count + mel.fft_size
        tables = {
            ENCODER_FILE: self.model.longest_text * width,
            DECODER_FILE: self.model.longest_steps * width,
            VOCODER_FILE: waves,
        }
        return tables.get(name, 0)


def decode_speech_manifest(encoded: bytes) -> SpeechManifest:
    """Decode a manifest, strictly.

    Raises:
        BundleError: If the bytes are no manifest of this version; says which side is older.
    """
    return decode_versioned(
        encoded, SpeechManifest, readable=_READABLE_VERSIONS, what="speech", older="the bundle"
    )
