"""Do what each ``sotto-export`` command does, and report it as names and values."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from export.bundles.keyboard_bundle import Bundle, load_bundle
from export.bundles.manifest import ParityRecord
from export.commands.reports import (
    Report,
    described,
    described_person,
    exported,
    inspected,
    named,
    verified,
)
from export.commands.sources import (
    authority_of,
    certificate_in,
    coordinator_of,
    identity_in,
    release_in,
)
from export.commands.speech import (
    inspect_speech,
    quantise_voice,
    verify_speech_bundle,
)
from export.faces.family import Precision
from export.making.image import ImageBundle, export_image, load_image_bundle, verify_image
from export.making.keyboard import export_keyboard, quantise_bundle, verify_bundle
from export.people.people_file import PeopleManifest, load_people_file
from export.people.personal_file import kind_of, load_personal_file
from export.runtime.next_word import NextWords
from export.runtime.word_graph import NextWordGraph


def export_keyboard_bundle(
    source: Path,
    target: Path,
    *,
    which: str,
    precision: Precision,
    languages: Sequence[str] | None,
    authority: Path | None,
    passphrase_file: Path | None,
) -> Report:
    """Export a release; a coordinator's own folder also checks it and signs the bundle.

    Args:
        source: Folder of a coordinator, of a simulated run, or of one release.
        target: New folder, or a ``.zip``.
        which: Round number, ``latest`` or ``best``.
        precision: How matrices are stored and multiplied.
        languages: BCP 47 tags; None for those that are known.
        authority: ``authority.crt``; None takes the coordinator's, if that is the source.
        passphrase_file: Opens the coordinator's keys.

    Raises:
        ValueError: If the release, its model or the target is refused.
        KeyFileError: If the coordinator's keys cannot be opened.
        CertificateError: If the coordinator's keys and certificates do not belong together.
        OSError: If the disk refuses.
    """
    release = release_in(source, which, authority)
    signer = coordinator_of(source, passphrase_file)
    manifest = export_keyboard(
        release, target, precision=precision, languages=languages, signed_with=signer
    )
    return exported(target, release, described(manifest), _compared(manifest.parity))


def export_image_bundle(
    source: Path,
    target: Path,
    *,
    which: str,
    precision: Precision,
    authority: Path | None,
    passphrase_file: Path | None,
) -> Report:
    """Export a classifier's release; arguments and errors as of ``export_keyboard_bundle``."""
    release = release_in(source, which, authority)
    signer = coordinator_of(source, passphrase_file)
    manifest = export_image(release, target, precision=precision, signed_with=signer)
    return exported(target, release, described(manifest), _compared(manifest.parity))


def export_people_file(
    source: Path,
    target: Path,
    *,
    which: str,
    authority: Path | None,
    passphrase_file: Path | None,
) -> Report:
    """Export the hypernetwork and everybody's embedding, for a server that makes people.

    Arguments and errors as of ``export_keyboard_bundle``.
    """
    from export.making.everybody import export_everybody  # Loads torch.

    release = release_in(source, which, authority)
    signer = coordinator_of(source, passphrase_file)
    made = export_everybody(release, target, signed_with=signer)
    return {"file": str(target), **_described_people(made)}


def quantise(
    source: Path,
    target: Path,
    *,
    sign_as: Path | None,
    authority: Path | None,
    passphrase_file: Path | None,
) -> Report:
    """Round a float32 bundle to 8 bits.

    Args:
        source: Folder or ``.zip`` of the bundle.
        target: New folder, or a ``.zip``.
        sign_as: The folder of the coordinator that is to sign; None for nobody.
        authority: ``authority.crt``: refuse a source that its coordinator did not sign; None takes
            that of the coordinator who is to sign, who vouches for nothing else.
        passphrase_file: Opens the coordinator's keys.

    Raises:
        ValueError: If the bundle or the target is refused.
        KeyFileError: If the coordinator's keys cannot be opened.
        CertificateError: If the coordinator's keys and certificates do not belong together.
        OSError: If the disk refuses.
    """
    signer = None if sign_as is None else identity_in(sign_as, passphrase_file)
    if authority is None and sign_as is not None:
        authority = authority_of(sign_as)
    certificate = certificate_in(authority)
    if kind_of(source) == "speech":
        return quantise_voice(source, target, authority=certificate, signed_with=signer)
    manifest = quantise_bundle(source, target, authority=certificate, signed_with=signer)
    return {
        "bundle": str(target),
        **described(manifest),
        "parity": _compared(manifest.parity),
        "rounding": f"moves a log-probability by up to {manifest.parity.rounding_difference:.1e} "
        "nats more",
    }


def inspect(source: Path, *, authority: Path | None) -> Report:
    """Say what a bundle or a personal file is, its signature and digests checked.

    Raises:
        ValueError: If anything in it is not what it must be.
        OSError: If it cannot be read.
    """
    certificate = certificate_in(authority)
    if kind_of(source) == "personal":
        person = load_personal_file(source, authority=certificate)
        return {"signed_by": named(person.signer), **described_person(person.manifest)}
    if kind_of(source) == "people":
        people = load_people_file(source, authority=certificate)
        return {"signed_by": named(people.signer), **_described_people(people.manifest)}
    if kind_of(source) == "speech":
        return inspect_speech(source, certificate)
    load = load_image_bundle if kind_of(source) == "image" else load_bundle
    bundle: Bundle | ImageBundle = load(source, authority=certificate)
    manifest = bundle.manifest
    return inspected(manifest, bundle.signer, described(manifest), _compared(manifest.parity))


def verify(source: Path, *, authority: Path | None) -> Report:
    """Check a bundle, or the digests and signature of a personal file.

    Raises:
        ValueError: If anything in it is not what it must be.
        OSError: If it cannot be read.
    """
    certificate = certificate_in(authority)
    if kind_of(source) in ("personal", "people"):
        return {"file": str(source), "digests": "fit", **inspect(source, authority=authority)}
    if kind_of(source) == "speech":
        return verify_speech_bundle(source, certificate)
    bundle: Bundle | ImageBundle
    if kind_of(source) == "image":
        bundle, record = verify_image(source, authority=certificate)
    else:
        found = verify_bundle(source, authority=certificate)
        bundle, record = found.bundle, found.parity
    manifest = bundle.manifest
    parity = None if record is None else _compared(record)
    return verified(source, manifest, bundle.signer, described(manifest), parity)


def suggest(
    source: Path, text: str, *, top: int, authority: Path | None, person: Path | None = None
) -> Report:
    """Suggest words for the end of a text, to everyone or to one person.

    Raises:
        ValueError: If the bundle is refused.
        OSError: If it cannot be read.
    """
    bundle = load_bundle(source, authority=certificate_in(authority))
    graph = NextWordGraph(bundle.graph)
    if person is not None:
        own = load_personal_file(person, authority=certificate_in(authority))
        graph = own.on(graph, bundle.manifest)
    keyboard = NextWords(graph, bundle.vocabulary, slot_count=top)
    return {"suggestions": [msgspec.to_builtins(word) for word in keyboard.suggest(text)]}


def _described_people(manifest: PeopleManifest) -> Report:
    return {
        "run": manifest.run,
        "round": manifest.round_number,
        "method": manifest.method,
        "bytes": {name: digest.size_bytes for name, digest in manifest.files.items()},
    }


def _compared(parity: ParityRecord) -> str:
    return f"equals torch to {parity.largest_difference:.1e} nats over {len(parity.shapes)} shapes"
