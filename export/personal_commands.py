"""Do what ``sotto-export personal`` does: from a release, or on a device from everyone's bundle."""

from pathlib import Path

from export.adapter import Resting
from export.bundle import load_bundle
from export.command_sources import certificate_in, coordinator_of, release_in
from export.exporter import ExportError
from export.image import export_image, load_image_bundle
from export.keyboard import export_keyboard
from export.personal_file import kind_of
from export.published_person import AnyBundle, export_own
from export.release import read_authority
from export.reports import Report, described, described_person, named
from export.signed_files import MANIFEST_FILE
from export.speech_bundle import SpeechBundle, load_speech_bundle
from export.speech_commands import described_speech
from export.speech_export import export_speech
from export.whole_bundle import export_whole
from models.published_part import PublishedPart, decode_published

_LATEST = "latest"


def export_personal(
    source: Path,
    target: Path,
    *,
    client: str | None,
    whole: bool,
    published: Path | None,
    resting: Resting,
    which: str,
    authority: Path | None,
    passphrase_file: Path | None,
) -> Report:
    """Export what is one client's own, or that client's whole model as a bundle.

    Args:
        source: Folder of a coordinator, of a simulated run, or of one release; or everyone's
            bundle, onto which goes what a device published.
        target: New folder, or a ``.zip``.
        client: Name given at enrolment; None for whoever published.
        whole: Whether to write a bundle with the client's whole model.
        published: The file that the client's device published; None where it keeps nothing.
        resting: How the tensors of a personal file are kept.
        which: Round number, ``latest`` or ``best``.
        authority: ``authority.crt``; None takes the coordinator's, if that is the source.
        passphrase_file: Opens the coordinator's keys.

    Raises:
        ValueError: If the source, the client or the target is refused.
        KeyFileError: If the coordinator's keys cannot be opened.
        CertificateError: If the coordinator's keys and certificates do not belong together.
        OSError: If the disk refuses.
    """
    part = None
    if published is not None:
        part = decode_published(published.read_bytes(), authority=_trusted(source, authority))
        if client not in (None, part.record.client):
            raise ExportError(
                f"a published part makes what is {part.record.client}'s, whose it is; "
                f"got --client {client}"
            )
    if _is_bundle(source):
        if which != _LATEST or passphrase_file is not None:
            raise ExportError(
                "a bundle is of one round, and nobody signs what is made of it: leave out --round "
                "and --passphrase-file"
            )
        return _from_bundle(source, target, part, whole=whole, resting=resting, authority=authority)
    from export.person import export_people, export_published  # Loads torch.

    release = release_in(source, which, authority)
    signer = coordinator_of(source, passphrase_file)
    if part is not None:
        if whole:
            raise ExportError(
                "a whole model with a published part is made of everyone's bundle, got a release: "
                "give the bundle as SOURCE"
            )
        own = export_published(release, part, target, resting=resting, signed_with=signer)
        return {"file": str(target), **described_person(own)}
    if client is None:
        raise ExportError("--client must say whose model it is, where nothing is --published")
    if whole:
        if release.plan.task == "speech":
            voice = export_speech(release, target, client=client, signed_with=signer)
            return {"bundle": str(target), "client": client, **described_speech(voice)}
        export = export_image if release.plan.task == "image_classification" else export_keyboard
        manifest = export(release, target, client=client, signed_with=signer)
        return {"bundle": str(target), "client": client, **described(manifest)}
    made = export_people(release, [(client, target)], resting=resting, signed_with=signer)
    return {"file": str(target), **described_person(made[0])}


def _from_bundle(
    source: Path,
    target: Path,
    part: PublishedPart | None,
    *,
    whole: bool,
    resting: Resting,
    authority: Path | None,
) -> Report:
    """Export from everyone's bundle, as a device does for its owner."""
    if part is None:
        raise ExportError(
            "a bundle holds what everyone shares: give with --published what the device keeps, or "
            "a coordinator's folder as SOURCE"
        )
    bundle = _load(source, authority)
    signed = {"bundle_signed_by": named(bundle.signer)}
    if not whole:
        own = export_own(bundle, part, target, resting=resting)
        return {"file": str(target), **signed, **described_person(own)}
    if isinstance(bundle, SpeechBundle):
        raise ExportError("a voice takes its speaker as a file: leave out --whole")
    manifest = export_whole(bundle, part, target)
    return {
        "bundle": str(target),
        **signed,
        "client": part.record.client,
        **described(manifest),
    }


def _is_bundle(source: Path) -> bool:
    return source.is_file() or (source / MANIFEST_FILE).is_file()


def _load(source: Path, authority: Path | None) -> AnyBundle:
    """Read everyone's bundle; with an authority its coordinator must have signed it."""
    certificate = certificate_in(authority)
    match kind_of(source):
        case "keyboard":
            return load_bundle(source, authority=certificate)
        case "image":
            return load_image_bundle(source, authority=certificate)
        case "speech":
            return load_speech_bundle(source, authority=certificate)
        case kind:
            raise ExportError(f"{source} must be everyone's bundle, got a file of kind {kind}")


def _trusted(source: Path, authority: Path | None) -> bytes:
    """Return the certificate that a device's signature must lead to."""
    kept = source / "authority" / "authority.crt"
    path = kept if authority is None and kept.is_file() else authority
    if path is None:
        raise ExportError("a published part is trusted by its signature: give --authority")
    return read_authority(path)
