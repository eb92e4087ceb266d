"""Say in names and values what a command of ``sotto-export`` made, checked or found."""

from pathlib import Path

import msgspec

from export.bundles.keyboard_bundle import AnyBundle
from export.bundles.manifest import BundleManifest, ParityRecord
from export.bundles.signed_by import Signer
from export.bundles.speech_manifest import SpeechManifest
from export.making.released_model import Verification
from export.people.people_file import PeopleManifest
from export.people.personal_file import PersonalManifest
from export.releases.release import Release

Report = dict[str, object]
"""A command's output, by name."""


def named(signer: Signer | None) -> str:
    """Say who signed."""
    return "nobody" if signer is None else signer.describe()


def described(manifest: BundleManifest) -> Report:
    """Say what a bundle's manifest holds that people want to know."""
    report: Report = {
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
    return report | (_described_voice(manifest) if isinstance(manifest, SpeechManifest) else {})


def _described_voice(manifest: SpeechManifest) -> Report:
    mel, part = manifest.model.mel, manifest.vocoder
    report: Report = {
        "growth_stage": manifest.growth_stage or "none: the run does not grow",
        "sound": f"{mel.sample_rate_hz} Hz, {mel.mel_count} channels, {mel.hop_size} samples a "
        "frame",
    }
    if part is None:
        return report | {"vocoder": "none: Griffin-Lim makes the sound"}
    return report | {
        "vocoder": f"run {part.run}, round {part.round_number}",
        "vocoder_metrics": part.metrics,
        "vocoder_privacy_spent": part.privacy.spent_after(part.round_number),
        "vocoder_promise": part.privacy.guarantee,
    }


def described_person(manifest: PersonalManifest) -> Report:
    """Say the same of a person's file."""
    return {
        "client": manifest.client,
        "origin": manifest.origin,
        **_described_run(manifest),
        "at_rest": manifest.resting,
    }


def described_people(manifest: PeopleManifest) -> Report:
    """Say the same of the file of everybody's embeddings."""
    return _described_run(manifest)


def _described_run(manifest: PersonalManifest | PeopleManifest) -> Report:
    return {
        "run": manifest.run,
        "round": manifest.round_number,
        "method": manifest.method,
        "bytes": {name: digest.size_bytes for name, digest in manifest.files.items()},
    }


def exported(target: Path, release: Release, manifest: BundleManifest) -> Report:
    """Say what a release became."""
    return {
        "bundle": str(target),
        "release_signed_by": named(release.signer),
        **described(manifest),
        "parity": _compared(manifest, manifest.parity),
    }


def rounded(target: Path, manifest: BundleManifest) -> Report:
    """Say what a bundle became that was rounded to 8 bits."""
    moved = f"{manifest.parity.rounding_difference:.1e}"
    is_voice = isinstance(manifest, SpeechManifest)
    return {
        "bundle": str(target),
        **described(manifest),
        "parity": _compared(manifest, manifest.parity),
        "rounding": f"moves a value by up to {moved} of the largest one more"
        if is_voice
        else f"moves a log-probability by up to {moved} nats more",
    }


def inspected(bundle: AnyBundle) -> Report:
    """Say what a bundle is that was only read."""
    manifest: BundleManifest = bundle.manifest
    personal = manifest.personal
    return {
        "signed_by": named(bundle.signer),
        "client": manifest.client or "everyone's",
        **described(manifest),
        "personal_tensors": "none" if personal is None else list(personal.tensors),
        "privacy_mode": manifest.privacy.mode,
        "opset": manifest.opset,
        "parity": _compared(manifest, manifest.parity),
    }


def verified(source: Path, found: Verification) -> Report:
    """Say what was checked of a bundle."""
    manifest: BundleManifest = found.bundle.manifest
    is_exact = manifest.precision == "float32"
    report: Report = {
        "bundle": str(source),
        "digests": "fit",
        "weights": "the release's, bit for bit"
        if is_exact
        else "those the manifest names, rounded",
        "parity": "not compared: torch is missing"
        if found.parity is None
        else _compared(manifest, found.parity),
        "bundle_signed_by": named(found.bundle.signer),
        **described(manifest),
    }
    if found.vocoder is not None:
        report["vocoder_parity"] = _compared(manifest, found.vocoder)
    return report


def _compared(manifest: BundleManifest, parity: ParityRecord) -> str:
    unit = "of the largest value" if isinstance(manifest, SpeechManifest) else "nats"
    return (
        f"equals torch to {parity.largest_difference:.1e} {unit} over {len(parity.shapes)} shapes"
    )
