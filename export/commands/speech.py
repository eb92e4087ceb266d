"""Do what the commands of ``sotto-export`` do with voices, and report it as names and values."""

import time
from pathlib import Path

import msgspec
import numpy as np

from export.bundles.speech_bundle import load_speech_bundle
from export.bundles.speech_manifest import SpeechManifest, SpeechParity
from export.commands.reports import Report, exported, inspected, verified
from export.commands.sources import certificate_in, coordinator_of, release_in
from export.faces.family import Precision
from export.making.speech import export_speech, quantise_speech, verify_speech
from export.people.personal_file import load_personal_file
from export.speaking.sound_file import check_format, encode_sound, format_of
from export.speaking.voice import open_voice
from privacy.foundation.atomic_files import write_atomically
from privacy.identities.party import Identity


def export_speech_bundle(
    source: Path,
    target: Path,
    *,
    vocoder: Path | None,
    which: str,
    precision: Precision,
    authority: Path | None,
    passphrase_file: Path | None,
) -> Report:
    """Export a voice's release, with the latest release of a vocoder's run beside it if given.

    With an authority both must be signed by its coordinator. Arguments and errors as of
    ``export_keyboard_bundle``.
    """
    release = release_in(source, which, authority)
    signer = coordinator_of(source, passphrase_file)
    beside = None if vocoder is None else release_in(vocoder, "latest", authority)
    manifest = export_speech(
        release, target, vocoder=beside, precision=precision, signed_with=signer
    )
    return exported(target, release, described_speech(manifest), _compared_speech(manifest.parity))


def speak(
    source: Path,
    text: str,
    target: Path,
    *,
    speed: float,
    seed: int | None,
    longest_s: float | None,
    person: Path | None,
    authority: Path | None,
) -> Report:
    """Say a text, in the voice of one person or of nobody in particular, and write the sound.

    Args:
        source: Folder or ``.zip`` of the bundle.
        text: Written English.
        target: File, ``.wav``, ``.flac``, ``.mp3`` or ``.ogg`` (Opus); replaced in one step.
        speed: How much faster than the voice learnt to speak.
        seed: Draws; None for the system's.
        longest_s: Seconds after which a sentence that does not end is cut off.
        person: A file made by ``export_personal``.
        authority: ``authority.crt``: refuse what its coordinator did not sign.

    Raises:
        ValueError: If bundle, person, text or format is refused.
        OSError: If a file cannot be read or written.
    """
    wanted = format_of(target)
    bundle = load_speech_bundle(source, authority=certificate_in(authority))
    voice = open_voice(bundle)
    check_format(wanted, voice.sample_rate_hz)
    if person is None:
        voice = voice.for_nobody()
    else:
        own = load_personal_file(person, authority=certificate_in(authority))
        voice = own.on(voice, bundle.manifest)
    started = time.monotonic()
    said = list(voice.speak(text, speed=speed, seed=seed, longest_s=longest_s))
    taken_s = time.monotonic() - started
    sound = np.concatenate([one.sound for one in said])
    write_atomically(target, encode_sound(sound, voice.sample_rate_hz, wanted))
    sounding_s = len(sound) / voice.sample_rate_hz
    return {
        "file": str(target),
        "sentences": len(said),
        "cut_off": sum(not one.has_ended for one in said),
        "seconds": round(sounding_s, 3),
        "seconds_taken": round(taken_s, 3),
        "sound_by": "Griffin-Lim" if bundle.manifest.vocoder is None else "the bundle's vocoder",
    }


def quantise_voice(
    source: Path, target: Path, *, authority: bytes | None, signed_with: Identity | None
) -> Report:
    """Round a voice's bundle to 8 bits; errors as of ``export.commands.bundles.quantise``."""
    manifest = quantise_speech(source, target, authority=authority, signed_with=signed_with)
    return {
        "bundle": str(target),
        **described_speech(manifest),
        "parity": _compared_speech(manifest.parity),
        "rounding": f"moves a value by up to {manifest.parity.rounding_difference:.1e} of the "
        "largest one more",
    }


def verify_speech_bundle(source: Path, authority: bytes | None) -> Report:
    """Check a speech bundle; errors as of ``export.commands.bundles.verify``."""
    bundle, found = verify_speech(source, authority=authority)
    manifest = bundle.manifest
    parity = None if found.voice is None else _compared_speech(found.voice)
    report = verified(source, manifest, bundle.signer, described_speech(manifest), parity)
    if found.vocoder is not None:
        report["vocoder_parity"] = _compared_speech(found.vocoder)
    return report


def inspect_speech(source: Path, authority: bytes | None) -> Report:
    """Say what a speech bundle is; errors as of ``export.commands.bundles.inspect``."""
    bundle = load_speech_bundle(source, authority=authority)
    parity = _compared_speech(bundle.manifest.parity)
    return inspected(bundle.manifest, bundle.signer, described_speech(bundle.manifest), parity)


def described_speech(manifest: SpeechManifest) -> Report:
    """Return what a manifest says that people want to know."""
    mel, part = manifest.model.mel, manifest.vocoder
    report: Report = {
        "run": manifest.run,
        "round": manifest.round_number,
        "growth_stage": manifest.growth_stage or "none: the run does not grow",
        "model": msgspec.to_builtins(manifest.model),
        "sound": f"{mel.sample_rate_hz} Hz, {mel.mel_count} channels, {mel.hop_size} samples a "
        "frame",
        "bytes": {name: digest.size_bytes for name, digest in manifest.files.items()},
        "precision": manifest.precision,
        "metrics": manifest.metrics,
        "privacy_spent": manifest.privacy.spent_after(manifest.round_number),
        "promise_for_the_whole_run": manifest.privacy.guarantee,
        "languages": " ".join(manifest.languages),
        "vocoder": "none: Griffin-Lim makes the sound",
    }
    if part is not None:
        report["vocoder"] = f"run {part.run}, round {part.round_number}"
        report["vocoder_metrics"] = part.metrics
        report["vocoder_privacy_spent"] = part.privacy.spent_after(part.round_number)
        report["vocoder_promise"] = part.privacy.guarantee
    return report


def _compared_speech(parity: SpeechParity) -> str:
    return (
        f"equals torch to {parity.largest_difference:.1e} of the largest value over "
        f"{len(parity.shapes)} shapes"
    )
