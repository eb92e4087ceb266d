"""Do what each ``sotto-export`` command does, and report it as names and values."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from export.bundles.keyboard_bundle import load_bundle
from export.bundles.manifest import BundleManifest
from export.commands.reports import (
    Report,
    described_people,
    described_person,
    exported,
    inspected,
    named,
    rounded,
    verified,
)
from export.commands.sources import (
    authority_of,
    certificate_in,
    coordinator_of,
    identity_in,
    release_in,
)
from export.faces.family import Precision
from export.making.image import ClassifierKind
from export.making.keyboard import KeyboardKind
from export.making.released_model import (
    BundleKind,
    export_bundle,
    load_any,
    quantise_bundle,
    verify_bundle,
)
from export.making.speech import VoiceKind
from export.people.people_file import load_people_file
from export.people.personal_file import kind_of, load_personal_file
from export.runtime.next_word import NextWords
from export.runtime.word_graph import NextWordGraph


def export_release(
    source: Path,
    target: Path,
    kind: str,
    *,
    which: str,
    precision: Precision,
    languages: Sequence[str] | None = None,
    vocoder: Path | None = None,
    authority: Path | None,
    passphrase_file: Path | None,
) -> Report:
    """Export a release; a coordinator's own folder also checks it and signs the bundle.

    Args:
        source: Folder of a coordinator, of a simulated run, or of one release.
        target: New folder, or a ``.zip``.
        kind: ``keyboard``, ``image`` or ``speech``.
        which: Round number, ``latest`` or ``best``.
        languages: BCP 47 tags of a keyboard; None for those that are known.
        vocoder: Source of the vocoder whose latest release goes beside a voice; None for none. With
            an authority it must be signed by its coordinator, too.
        authority: ``authority.crt``; None takes the coordinator's, if that is the source.

    Raises:
        ValueError: If the release, its model or the target is refused.
        KeyFileError: If the coordinator's keys cannot be opened.
        CertificateError: If the coordinator's keys and certificates do not belong together.
        OSError: If the disk refuses.
    """
    release = release_in(source, which, authority)
    signer = coordinator_of(source, passphrase_file)
    made: BundleKind[BundleManifest]
    match kind:
        case "keyboard":
            made = KeyboardKind(languages)
        case "image":
            made = ClassifierKind()
        case _:
            made = VoiceKind(None if vocoder is None else release_in(vocoder, "latest", authority))
    manifest = export_bundle(made, release, target, precision=precision, signed_with=signer)
    return exported(target, release, manifest)


def export_people_file(
    source: Path,
    target: Path,
    *,
    which: str,
    authority: Path | None,
    passphrase_file: Path | None,
) -> Report:
    """Export the hypernetwork and everybody's embedding, for a server that makes people.

    Arguments and errors as of ``export_release``.
    """
    from export.making.everybody import export_everybody  # Loads torch.

    release = release_in(source, which, authority)
    signer = coordinator_of(source, passphrase_file)
    made = export_everybody(release, target, signed_with=signer)
    return {"file": str(target), **described_people(made)}


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
    manifest = quantise_bundle(source, target, authority=certificate, signed_with=signer)
    return rounded(target, manifest)


def inspect(source: Path, *, authority: Path | None) -> Report:
    """Say what a bundle or a personal file is, its signature and digests checked.

    Raises:
        ValueError: If anything in it is not what it must be.
        OSError: If it cannot be read.
    """
    certificate = certificate_in(authority)
    match kind_of(source):
        case "personal":
            person = load_personal_file(source, authority=certificate)
            return {"signed_by": named(person.signer), **described_person(person.manifest)}
        case "people":
            people = load_people_file(source, authority=certificate)
            return {"signed_by": named(people.signer), **described_people(people.manifest)}
        case _:
            return inspected(load_any(source, authority=certificate))


def verify(source: Path, *, authority: Path | None) -> Report:
    """Check a bundle, or the digests and signature of a personal file.

    Raises:
        ValueError: If anything in it is not what it must be.
        OSError: If it cannot be read.
    """
    certificate = certificate_in(authority)
    if kind_of(source) in ("personal", "people"):
        return {"file": str(source), "digests": "fit", **inspect(source, authority=authority)}
    return verified(source, verify_bundle(source, authority=certificate))


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
