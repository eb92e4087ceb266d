"""Do what ``sotto-export personal`` does: from a release, or on a device from everyone's bundle."""

from pathlib import Path

from export.bundles.manifest import BundleManifest
from export.bundles.signed_files import MANIFEST_FILE
from export.commands.flags import Personal
from export.commands.reports import Report, described, described_person, named
from export.commands.sources import authority_of, certificate_in, coordinator_of, release_in
from export.faces.family import ExportError
from export.making.image import ClassifierKind
from export.making.keyboard import KeyboardKind
from export.making.person_of_device import export_own
from export.making.released_model import BundleKind, export_bundle, load_any
from export.making.speech import VoiceKind
from export.making.whole_bundle import export_whole
from export.people.personal_file import PersonalFile, load_personal_file
from export.releases.release import Release, read_authority
from models.plan.published_part import PublishedPart, decode_published
from privacy.identities.party import Identity

_LATEST = "latest"


def export_personal(options: Personal) -> Report:
    """Export what is one client's own, or that client's whole model as a bundle.

    Raises:
        ValueError: If the source, the client or the target is refused.
        KeyFileError: If the coordinator's keys cannot be opened.
        CertificateError: If the coordinator's keys and certificates do not belong together.
        OSError: If the disk refuses.
    """
    source, target = options.source, options.out
    part = _published(source, options)
    if _is_bundle(source):
        return _of_bundle(source, target, part, options)
    if options.generated is not None or (
        options.generated_only and (options.whole or part is not None)
    ):
        raise ExportError(
            "--generated goes with everyone's bundle, and --generated-only with --client alone"
        )
    release = release_in(source, options.round, options.authority)
    signer = coordinator_of(source, options.passphrase_file)
    if part is None:
        return _of_client(release, target, signer, options)
    return _of_part(release, target, part, signer, options)


def _published(source: Path, options: Personal) -> PublishedPart | None:
    """Return what the client's device published, if the client is the one that was named."""
    if options.published is None:
        return None
    trusted = _trusted(source, options.authority)
    part = decode_published(options.published.read_bytes(), authority=trusted)
    if options.client not in (None, part.record.client):
        raise ExportError(
            f"a published part makes what is {part.record.client}'s, whose it is; "
            f"got --client {options.client}"
        )
    return part


def _of_client(
    release: Release, target: Path, signer: Identity | None, options: Personal
) -> Report:
    """Export what the coordinator knows of a client by itself."""
    if options.client is None:
        raise ExportError("--client must say whose model it is, where nothing is --published")
    if options.whole:
        return _whole(release, target, options.client, signer)
    from export.making.person_of_release import export_generated, export_people  # Loads torch.

    if options.generated_only:
        own = export_generated(release, options.client, target, signed_with=signer)
    else:
        people = [(options.client, target)]
        (own,) = export_people(release, people, resting=options.at_rest, signed_with=signer)
    return {"file": str(target), **described_person(own)}


def _of_part(
    release: Release,
    target: Path,
    part: PublishedPart,
    signer: Identity | None,
    options: Personal,
) -> Report:
    """Export what a device published, for a server of personal models."""
    if options.whole:
        raise ExportError(
            "a whole model with a published part is made of everyone's bundle, got a release: "
            "give the bundle as SOURCE"
        )
    from export.making.person_of_release import export_published  # Loads torch.

    own = export_published(release, part, target, resting=options.at_rest, signed_with=signer)
    return {"file": str(target), **described_person(own)}


def _of_bundle(source: Path, target: Path, part: PublishedPart | None, options: Personal) -> Report:
    """Export from everyone's bundle, as a device does for its owner."""
    if options.round != _LATEST or options.passphrase_file is not None:
        raise ExportError(
            "a bundle is of one round, and nobody signs what is made of it: leave out --round "
            "and --passphrase-file"
        )
    if part is None or options.generated_only:
        raise ExportError(
            "a bundle holds what everyone shares: give with --published what the device keeps, "
            "or a coordinator's folder as SOURCE"
        )
    generated = _generated(options.generated, options.authority)
    bundle = load_any(source, authority=certificate_in(options.authority))
    signed = {"bundle_signed_by": named(bundle.signer)}
    if not options.whole:
        own = export_own(bundle, part, target, generated=generated, resting=options.at_rest)
        return {"file": str(target), **signed, **described_person(own)}
    manifest = export_whole(bundle, part, target, generated=generated)
    client = {"client": part.record.client}
    return {"bundle": str(target), **signed, **client, **described(manifest)}


def bundle_kind(task: str) -> BundleKind[BundleManifest]:
    """Return the kind of bundle that models of a task go into."""
    kinds: dict[str, BundleKind[BundleManifest]] = {
        "speech": VoiceKind(),
        "image_classification": ClassifierKind(),
    }
    return kinds.get(task, KeyboardKind())


def _whole(release: Release, target: Path, client: str, signer: Identity | None) -> Report:
    """Export a bundle of a client's whole model, all of which the coordinator knows."""
    kind = bundle_kind(release.plan.task)
    manifest = export_bundle(kind, release, target, client=client, signed_with=signer)
    return {"bundle": str(target), "client": client, **described(manifest)}


def _generated(source: Path | None, authority: Path | None) -> PersonalFile | None:
    return (
        None if source is None else load_personal_file(source, authority=certificate_in(authority))
    )


def _is_bundle(source: Path) -> bool:
    return source.is_file() or (source / MANIFEST_FILE).is_file()


def _trusted(source: Path, authority: Path | None) -> bytes:
    """Return the certificate that a device's signature must lead to."""
    kept = authority_of(source)
    path = kept if authority is None and kept.is_file() else authority
    if path is None:
        raise ExportError("a published part is trusted by its signature: give --authority")
    return read_authority(path)
