"""Say in names and values what a command of ``sotto-export`` made, checked or found."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from export.bundles.signed_by import Signer
from export.releases.release import Release

if TYPE_CHECKING:
    from export.bundles.manifest import Manifest
    from export.bundles.speech_manifest import SpeechManifest
    from export.people.personal_file import PersonalManifest

Report = dict[str, object]
"""What a command says, by name."""


def named(signer: Signer | None) -> str:
    """Say who signed."""
    return "nobody" if signer is None else signer.describe()


def described(manifest: "Manifest") -> Report:
    """Say what a keyboard's or a classifier's manifest holds that people want to know."""
    return {
        "run": manifest.run,
        "round": manifest.round_number,
        "model": msgspec.to_builtins(manifest.model),
        "bytes": {name: digest.size_bytes for name, digest in manifest.files.items()},
        "precision": manifest.precision,
        "metrics": manifest.metrics,
        "privacy_spent": manifest.privacy.spent_after(manifest.round_number),
        "promise_for_the_whole_run": manifest.privacy.guarantee,
        "languages": " ".join(manifest.languages) or "not said",
    }


def described_person(manifest: "PersonalManifest") -> Report:
    """Say the same of a person's file."""
    return {
        "client": manifest.client,
        "origin": manifest.origin,
        "run": manifest.run,
        "round": manifest.round_number,
        "method": manifest.method,
        "at_rest": manifest.resting,
        "bytes": {name: digest.size_bytes for name, digest in manifest.files.items()},
    }


def exported(target: Path, release: Release, described: Report, parity: str) -> Report:
    """Say what a release became: a bundle so described, which compared with torch like that."""
    return {
        "bundle": str(target),
        "release_signed_by": named(release.signer),
        **described,
        "parity": parity,
    }


def inspected(
    manifest: "Manifest | SpeechManifest", signer: Signer | None, described: Report, parity: str
) -> Report:
    """Say what a bundle is that was only read."""
    personal = manifest.personal
    return {
        "signed_by": named(signer),
        "client": manifest.client or "everyone's",
        **described,
        "personal_tensors": "none" if personal is None else list(personal.tensors),
        "privacy_mode": manifest.privacy.mode,
        "opset": manifest.opset,
        "parity": parity,
    }


def verified(
    source: Path,
    manifest: "Manifest | SpeechManifest",
    signer: Signer | None,
    described: Report,
    parity: str | None,
) -> Report:
    """Say what was checked of a bundle; None for a parity that could not be compared here."""
    is_exact = manifest.precision == "float32"
    return {
        "bundle": str(source),
        "digests": "fit",
        "weights": "the release's, bit for bit"
        if is_exact
        else "those the manifest names, rounded",
        "parity": "not compared: torch is missing" if parity is None else parity,
        "bundle_signed_by": named(signer),
        **described,
    }
