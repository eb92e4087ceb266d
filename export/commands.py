"""Do what each ``sotto-export`` command does, and report it as names and values."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from export.bundle import load_bundle
from export.keyboard import export_keyboard, verify_bundle
from export.manifest import Manifest, ParityRecord
from export.next_word import NextWords
from export.release import find_release, read_authority, read_release
from export.runtime import NextWordGraph
from export.signed_by import Signer
from privacy.identity import Identity
from privacy.keys import read_passphrase

Report = dict[str, object]


def export_keyboard_bundle(
    source: Path,
    target: Path,
    *,
    which: str,
    languages: Sequence[str] | None,
    authority: Path | None,
    passphrase_file: Path | None,
) -> Report:
    """Export a release; a coordinator's own folder also checks it and signs the bundle.

    Args:
        source: Folder of a coordinator, of a simulated run, or of one release.
        target: New folder, or a ``.zip``.
        which: Round number, ``latest`` or ``best``.
        languages: BCP 47 tags; None for those that are known.
        authority: ``authority.crt``; None takes the coordinator's, if that is the source.
        passphrase_file: Opens the coordinator's keys.

    Raises:
        ValueError: If the release, its model or the target is refused.
        KeyFileError: If the coordinator's keys cannot be opened.
        CertificateError: If the coordinator's keys and certificates do not belong together.
        OSError: If the disk refuses.
    """
    kept = source / "authority" / "authority.crt"
    if authority is None and kept.is_file():
        authority = kept
    release = read_release(find_release(source, which), authority=_read(authority))
    manifest = export_keyboard(
        release, target, languages=languages, signed_with=_coordinator(source, passphrase_file)
    )
    return {
        "bundle": str(target),
        "release_signed_by": _named(release.signer),
        **_described(manifest),
        "parity": _compared(manifest.parity),
    }


def verify(source: Path, *, authority: Path | None) -> Report:
    """Check a bundle.

    Raises:
        ValueError: If anything in it is not what it must be.
        OSError: If it cannot be read.
    """
    found = verify_bundle(source, authority=_read(authority))
    parity = "not compared: torch is missing" if found.parity is None else _compared(found.parity)
    return {
        "bundle": str(source),
        "digests": "fit",
        "weights": "the release's, bit for bit",
        "parity": parity,
        "bundle_signed_by": _named(found.bundle.signer),
        **_described(found.bundle.manifest),
    }


def suggest(source: Path, text: str, *, top: int, authority: Path | None) -> Report:
    """Suggest words for the end of a text.

    Raises:
        ValueError: If the bundle is refused.
        OSError: If it cannot be read.
    """
    bundle = load_bundle(source, authority=_read(authority))
    keyboard = NextWords(NextWordGraph(bundle.graph), bundle.vocabulary, slot_count=top)
    return {"suggestions": [msgspec.to_builtins(word) for word in keyboard.suggest(text)]}


def _described(manifest: Manifest) -> Report:
    return {
        "run": manifest.run,
        "round": manifest.round_number,
        "model": msgspec.to_builtins(manifest.model),
        "bytes": {name: digest.size_bytes for name, digest in manifest.files.items()},
        "metrics": manifest.metrics,
        "privacy": manifest.privacy.guarantee,
        "languages": " ".join(manifest.languages) or "not said",
    }


def _compared(parity: ParityRecord) -> str:
    return f"equals torch to {parity.largest_difference:.1e} nats over {len(parity.shapes)} shapes"


def _named(signer: Signer | None) -> str:
    return "nobody" if signer is None else signer.describe()


def _read(authority: Path | None) -> bytes | None:
    return None if authority is None else read_authority(authority)


def _coordinator(source: Path, passphrase_file: Path | None) -> Identity | None:
    """Return the coordinator whose folder is given; nobody signs for another folder."""
    if not (source / "identity").is_dir():
        return None
    passphrase = None if passphrase_file is None else read_passphrase(passphrase_file)
    return Identity.load(source / "identity", passphrase)
