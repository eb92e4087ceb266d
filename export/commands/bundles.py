"""Do what each ``sotto-export`` command does, and report it as names and values."""

from pathlib import Path

import msgspec

from export.bundles.manifest import BundleManifest
from export.commands.flags import Asking, FromRelease, Graph, PluginGraph, Rounding, Speech
from export.commands.open_bundles import OpenKeyboard
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
from export.runtime.strip import typed_word
from models.plugins.loaded import load_plugins
from models.text.letters import is_unparted


def export_release(asked: Graph, kind: BundleKind[BundleManifest]) -> Report:
    """Export a release; a coordinator's own folder also checks it and signs the bundle.

    Raises:
        ValueError: If the release, its model or the target is refused.
        KeyFileError: If the coordinator's keys cannot be opened.
        CertificateError: If the coordinator's keys and certificates do not belong together.
        OSError: If the disk refuses.
    """
    release = release_in(asked.source, asked.round, asked.authority)
    signer = coordinator_of(asked.source, asked.passphrase_file)
    manifest = export_bundle(
        kind, release, asked.out, precision=asked.precision, signed_with=signer
    )
    return exported(asked.out, release, manifest)


def export_plugin(asked: PluginGraph) -> Report:
    """Export a plugin's model as one ONNX file, unsigned; errors as of ``export_release``.

    Raises:
        PluginError: If a plugin cannot be used.
    """
    from export.making.plugin_graph import export_graph

    load_plugins(asked.plugin)
    release = release_in(asked.source, asked.round, asked.authority)
    largest = export_graph(release, asked.out)
    return {
        "file": str(asked.out),
        "run": release.record.run,
        "round": release.record.round,
        "plugins": " ".join(release.plan.named_plugins),
        "signed_by": named(release.signer),
        "promise_for_the_whole_run": release.record.guarantee,
        "largest_difference": largest,
    }


def export_voice(asked: Speech) -> Report:
    """Export a voice, with the latest release of its vocoder's run beside it.

    With an authority the vocoder must be signed by its coordinator, too. Errors as of
    ``export_release``.
    """
    vocoder = None
    if asked.vocoder is not None:
        vocoder = release_in(asked.vocoder, "latest", asked.authority)
    return export_release(asked, VoiceKind(vocoder))


def export_people_file(asked: FromRelease) -> Report:
    """Export the hypernetwork and everybody's embedding, for a server that makes people.

    Errors as of ``export_release``.
    """
    from export.making.everybody import export_everybody  # Loads torch.

    release = release_in(asked.source, asked.round, asked.authority)
    signer = coordinator_of(asked.source, asked.passphrase_file)
    made = export_everybody(release, asked.out, signed_with=signer)
    return {"file": str(asked.out), **described_people(made)}


def quantise(asked: Rounding) -> Report:
    """Round a float32 bundle to 8 bits.

    Without an authority the source must be signed by the coordinator that is to sign, which vouches
    for nothing else. Errors as of ``export_release``.
    """
    signer, authority = None, asked.authority
    if asked.sign_as is not None:
        signer = identity_in(asked.sign_as, asked.passphrase_file)
        authority = authority or authority_of(asked.sign_as)
    certificate = certificate_in(authority)
    manifest = quantise_bundle(asked.bundle, asked.out, authority=certificate, signed_with=signer)
    return rounded(asked.out, manifest)


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


def suggest(asked: Asking, text: str) -> Report:
    """Suggest words for the end of a text, to everyone or to one person.

    Raises:
        ValueError: If the bundle is refused, or the text ends in writing without blanks.
        OSError: If it cannot be read.
    """
    keyboard = OpenKeyboard(
        asked.bundle, person=asked.person, authority=asked.authority, offensive=asked.offensive
    )
    typed = typed_word(text)
    if is_unparted(typed):
        raise ValueError(
            f"text must end in writing with blanks between words, got {typed[:12]!r}: without them "
            "a keyboard takes whole sentences for words, and suggests nothing"
        )
    found = keyboard.suggest(text, count=asked.top)
    return {"suggestions": [msgspec.to_builtins(word) for word in found]}
