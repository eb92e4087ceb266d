"""The record of one release: the model that a round ended in, as ``release.json`` holds it.

A release is a folder ``releases/<round>/`` with ``parameters.bin`` (`models.vector.codec`),
``plan.json``, ``vocabulary.txt`` if the task has words, ``release.json`` and, from a coordinator,
``release.sig`` (a signature over the bytes of ``release.json``) with ``signer.der`` (the
certificate of its key). The record holds the digests of parameters, plan and vocabulary, so the one
signature covers them all. No torch: the export reads this.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from privacy.foundation.strict_json import LARGEST_RECORD_BYTES, decode_json

RELEASE_VERSION: Final = 1
PARAMETERS_FILE = "parameters.bin"
PLAN_FILE = "plan.json"
VOCABULARY_FILE = "vocabulary.txt"
PERSONALISATION_FILE = "personalisation.safetensors"
RECORD_FILE = "release.json"
SIGNATURE_FILE = "release.sig"
SIGNER_FILE = "signer.der"

Metric = float | int | str | None


class ReleaseError(ValueError):
    """Raised when a release cannot be read or is not what it says; the text says why."""


class ReleaseRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything known of a release beside the model itself.

    Attributes:
        format_version: Version of this struct and of the files beside it.
        run: Identifier of the run, 32 hex digits.
        round: Round that ended in this model, from 1; 0 for the initial parameters.
        parameters_sha256: Hex digest of the parameters' little-endian float32 bytes.
        schema_sha256: Hex digest of the schema.
        previous_sha256: Hex digest of the parameters the round started from; zeros for round 0.
        metrics: Figures of the model and its round.
        guarantee: The noise mode's promise, in words.
        files: Hex SHA-256 of plan and, if there is one, vocabulary, by file name.
        ledger_sha256: Hex head of the privacy ledger with this release in it; empty for round 0.
    """

    format_version: int = RELEASE_VERSION
    run: str
    round: int
    parameters_sha256: str
    schema_sha256: str
    previous_sha256: str
    metrics: dict[str, Metric]
    guarantee: str
    files: dict[str, str] = {}
    ledger_sha256: str = ""

    def encode(self) -> bytes:
        """Return the record as JSON bytes, equal for equal records."""
        return msgspec.json.encode(self, order="deterministic")


def decode_release_record(encoded: bytes) -> ReleaseRecord:
    """Decode ``release.json``, strictly, or raise ``ReleaseError``; says which side is older."""
    try:
        version = decode_json(encoded, _Versioned, at_most=LARGEST_RECORD_BYTES).format_version
        if version != RELEASE_VERSION:
            older = "this sotto" if version > RELEASE_VERSION else "the release"
            raise ReleaseError(
                f"release format_version must be {RELEASE_VERSION}, got {version}; {older} is older"
            )
        return decode_json(encoded, ReleaseRecord, at_most=LARGEST_RECORD_BYTES)
    except msgspec.DecodeError as error:
        raise ReleaseError(f"{RECORD_FILE} cannot be read: {error}") from None


def digests_of(contents: Mapping[str, bytes | bytearray | memoryview]) -> dict[str, str]:
    """Return the hex SHA-256 of each file's content, by name."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}


def check_release_files(folder: Path, record: ReleaseRecord) -> None:
    """Raise ``ReleaseError`` unless a release's files have the digests in its record."""
    for name, expected in record.files.items():
        try:
            with (folder / name).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise ReleaseError(f"{folder / name} cannot be read: {error.strerror}") from None
        if found != expected:
            raise ReleaseError(f"{folder / name} is not the file that {RECORD_FILE} describes")


class _Versioned(msgspec.Struct):
    format_version: int
