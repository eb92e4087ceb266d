"""The manifest of a speech bundle: which voice, which round and which vocoder, file by file."""

from collections.abc import Sequence
from typing import ClassVar, Literal

import msgspec

from export.bundles.manifest import BundleManifest, ParityRecord, PrivacyStatement
from export.faces.speech import (
    DECODER_FILE,
    ENCODER_FILE,
    VOCODER_FILE,
    file_of,
)
from models.plan.release_record import Metric
from models.settings.vocoder import VocoderSettings
from models.settings.voice import TransformerTtsSettings
from models.vector.schema import Schema

LANGUAGES = ("en",)
"""Languages that `models.text.spoken_text` reads aloud."""


class VocoderPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The vocoder that makes the sound.

    Attributes:
        model: Its settings.
        parameters_sha256: Hex digest of its parameters, little-endian float32 in schema order.
        run: Identifier of the run that trained it, 32 hex digits.
        round_number: Round whose release it is.
        metrics: Figures of that release, by name.
        privacy: The promise of that training, and what it has spent.
        parity: The comparison with torch at export.
    """

    model: VocoderSettings
    parameters_sha256: str
    run: str
    round_number: int = msgspec.field(name="round")
    metrics: dict[str, Metric]
    privacy: PrivacyStatement
    parity: ParityRecord


class SpeechManifest(BundleManifest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Manifest of a voice.

    Attributes:
        growth_stage: Stage of a run that grows its layers; None without growth.
        vocoder: The vocoder that makes the sound; None for Griffin-Lim.
    """

    newest_version: ClassVar[int] = 2
    version_of: ClassVar[str] = "speech"
    own_field: ClassVar[tuple[str, str]] = ("growth_stage", "round")

    format_version: int = newest_version
    kind: Literal["speech"] = "speech"
    model: TransformerTtsSettings
    growth_stage: int | None = None
    languages: tuple[str, ...] = LANGUAGES
    vocoder: VocoderPart | None = None

    def __post_init__(self) -> None:
        self.check_model()
        if self.vocoder is not None and self.vocoder.model.mel != self.model.mel:
            raise ValueError("the vocoder's mel settings must be the voice's, got others")
        for name in self.files:
            is_rounded = self.precision == "int8" and name != VOCODER_FILE
            tables = self._table_elements(name)
            self.check_size(name, self._elements(name), is_rounded=is_rounded, tables=tables)

    @property
    def content_files(self) -> Sequence[str]:
        """Return the files beside the manifest."""
        voice = super().content_files
        return voice if self.vocoder is None else (*voice, VOCODER_FILE)

    def _elements(self, name: str) -> int:
        """Count the parameters in a file."""
        if name == VOCODER_FILE:
            return 0 if self.vocoder is None else self.vocoder.model.schema().element_count
        return Schema(
            tuple(spec for spec in self.held_schema.tensors if file_of(spec.name) == name)
        ).element_count

    def _table_elements(self, name: str) -> int:
        """Count the numbers in a file that follow from the settings."""
        mel, width = self.model.mel, self.model.hidden_size
        waves = (mel.mel_count + 2 * mel.bin_count) * mel.bin_count + mel.fft_size
        tables = {
            ENCODER_FILE: self.model.longest_text * width,
            DECODER_FILE: self.model.longest_steps * width,
            VOCODER_FILE: waves,
        }
        return tables.get(name, 0)
