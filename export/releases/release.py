"""Read a release: the model that a round ended in, checked file by file.

A coordinator signs its releases and a simulation does not (`models.plan.release_record`). Nothing
is taken before its digests fit, and a signature that does not fit is refused.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from export.bundles.signed_by import Signer, UntrustedError, check_signature
from models.plan.plan import Plan, decode_plan, plan_schema, released_schema
from models.plan.release_record import (
    PARAMETERS_FILE,
    PERSONALISATION_FILE,
    PLAN_FILE,
    RECORD_FILE,
    SIGNATURE_FILE,
    SIGNER_FILE,
    VOCABULARY_FILE,
    ReleaseError,
    ReleaseRecord,
    check_release_files,
    decode_release_record,
)
from models.text.vocabulary import Vocabulary, decode_vocabulary
from models.vector.codec import FlatVector, decode
from privacy.identities.certificates import CertificateError, certificate_der
from privacy.identities.signatures import Purpose

_POINTERS = ("latest", "best")
# What a coordinator's folder and a run's folder hold before their first release.
_MARKS = ("federation.toml", "run.json")


@dataclass(frozen=True)
class Release:
    """A release whose digests fit.

    Attributes:
        vocabulary: The word list of the model's rows; None for a model without words.
        parameters: The shared parameters, flat float32 in schema order, shape ``(elements,)``,
            read-only.
        signer: The signer; None for a simulation's.
        personalisation: State of the method's server half, as its file; None without.
    """

    record: ReleaseRecord
    plan: Plan
    vocabulary: Vocabulary | None
    parameters: FlatVector
    signer: Signer | None
    personalisation: bytes | None = None


def find_release(source: Path, which: str = "latest") -> Path:
    """Return the folder of one release; raise ReleaseError if there is none such.

    Args:
        source: A coordinator's folder, a simulation's run folder, or one release's folder.
        which: A round number, ``latest`` or ``best``; of one release's folder only ``latest``.
    """
    releases = source / "releases"
    if (source / RECORD_FILE).is_file() and which == "latest":
        return source
    if not releases.is_dir() and not any((source / mark).is_file() for mark in _MARKS):
        raise ReleaseError(
            f"{source} must be the folder of a coordinator, of a simulated run or of one release"
        )
    rounds = {int(path.name): path for path in releases.glob("[0-9]*") if path.name.isdigit()}
    if not rounds:
        raise ReleaseError(f"{source} has no release yet; wait for its first round to end")
    found = _pick(releases, rounds, which)
    if found is None:
        raise ReleaseError(f"{source} must have release {which}, got {_listed(sorted(rounds))}")
    return found


def read_release(folder: Path, *, authority: bytes | None = None) -> Release:
    """Read a release and check its signature, if it has one, and every digest.

    A pointer, such as ``latest``, is followed once: all files are one release's, however often a
    running coordinator moves the pointer meanwhile.

    If ``authority`` is given, the federation's certificate, DER, a coordinator that it certified
    must have signed the release.

    Raises:
        ReleaseError: If a file is missing, or is not what the record says it is.
    """
    folder = folder.resolve()
    encoded = _read(folder / RECORD_FILE)
    record = decode_release_record(encoded)
    signer = _check_signer(folder, encoded, authority)
    if signer is not None:
        _check_covered(folder, record, PLAN_FILE)
    check_release_files(folder, record)
    try:
        plan = decode_plan(_read(folder / PLAN_FILE))
        vocabulary = None
        if plan.vocabulary is not None:
            if signer is not None:
                _check_covered(folder, record, VOCABULARY_FILE)
            vocabulary = decode_vocabulary(_read(folder / VOCABULARY_FILE))
        parameters = decode(released_schema(plan), _read(folder / PARAMETERS_FILE))
        learnt = PERSONALISATION_FILE in record.files
        personalisation = _read(folder / PERSONALISATION_FILE) if learnt else None
    except ReleaseError:
        raise
    except ValueError as error:
        raise ReleaseError(f"{folder}: {error}") from None
    release = Release(record, plan, vocabulary, parameters, signer, personalisation)
    _check_consistent(folder, release)
    return release


def read_authority(path: Path) -> bytes:
    """Return the authority's certificate, X.509 DER, from its PEM file; ReleaseError if none."""
    try:
        return certificate_der(_read(path))
    except CertificateError as error:
        raise ReleaseError(f"{path}: {error}") from None


def parameters_sha256(parameters: FlatVector) -> str:
    """Return the hex SHA-256 of the vector's little-endian float32 bytes."""
    return hashlib.sha256(parameters.astype("<f4", copy=False).data).hexdigest()


def _pick(releases: Path, rounds: Mapping[int, Path], which: str) -> Path | None:
    if which.isdecimal():
        return rounds.get(int(which))
    if which in _POINTERS and (releases / which).is_dir():
        return releases / which
    return rounds[max(rounds)] if which == "latest" else None


def _check_signer(folder: Path, record: bytes, authority: bytes | None) -> Signer | None:
    is_signed = (folder / SIGNATURE_FILE).exists() or (folder / SIGNER_FILE).exists()
    if not is_signed and authority is None:
        return None
    try:
        return check_signature(
            record,
            _read(folder / SIGNATURE_FILE),
            _read(folder / SIGNER_FILE),
            purpose=Purpose.RELEASE,
            authority=authority,
        )
    except UntrustedError as error:
        raise ReleaseError(f"{folder}: {error}") from None


def _check_covered(folder: Path, record: ReleaseRecord, name: str) -> None:
    if name not in record.files:
        raise ReleaseError(f"{folder / RECORD_FILE} must hold the digest of {name}")


def _check_consistent(folder: Path, release: Release) -> None:
    """Compare what the files say of each other."""
    record, plan, vocabulary = release.record, release.plan, release.vocabulary
    checks = {
        "run": (plan.run, record.run),
        "schema": (plan_schema(plan).sha256.hex(), record.schema_sha256),
        "plan's schema": (plan.schema_sha256, record.schema_sha256),
        "parameters": (parameters_sha256(release.parameters), record.parameters_sha256),
    }
    if vocabulary is not None and plan.vocabulary is not None:
        checks["vocabulary"] = (vocabulary.sha256.hex(), plan.vocabulary.sha256)
        checks["vocabulary size"] = (str(len(vocabulary)), str(plan.vocabulary.size))
    for name, (found, expected) in checks.items():
        if found != expected:
            raise ReleaseError(f"{name} of {folder} must be {expected}, got {found}")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ReleaseError(f"{path} cannot be read: {error.strerror}") from None


def _listed(rounds: list[int]) -> str:
    return ", ".join(map(str, rounds[-5:]))
