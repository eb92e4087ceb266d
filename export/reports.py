"""Say in names and values what a command of ``sotto-export`` made, checked or found."""

from pathlib import Path
from typing import TYPE_CHECKING

from export.release import Release
from export.signed_by import Signer

if TYPE_CHECKING:
    from export.manifest import Manifest
    from export.speech_manifest import SpeechManifest

Report = dict[str, object]
"""What a command says, by name."""


def named(signer: Signer | None) -> str:
    """Say who signed."""
    return "nobody" if signer is None else signer.describe()


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
