"""Load one version of the voice, and find each person's own on it."""

from dataclasses import dataclass

from export.bundles.keyboard_bundle import load_speech_bundle
from export.bundles.speech_manifest import SpeechManifest
from export.people.personal_file import load_file_of
from export.serve.folder.folder import ServingFolder
from export.serve.folder.settings import ServeSettings
from export.serve.loaded.keyboard_version import check_everyones
from export.serve.loaded.personal_models import NoPersonalModelError
from export.serve.loaded.shelf import Shelf
from export.speaking.voice import Voice, open_voice

SHARED_VOICE = "@shared"
"""Asks for everybody's voice; no client's name begins so."""

# Has a number in it, so that what puts numbers into words is asked too.
_TRIAL = "1."
_TRIAL_S = 0.1


class NoSharedVoiceError(Exception):
    """Raised when the shared voice is asked for, but the person's part is more than the speaker."""


@dataclass(frozen=True)
class ServedVoice:
    """One version in memory."""

    version: str
    manifest: SpeechManifest
    voice: Voice


def load_voice(folder: ServingFolder, settings: ServeSettings, version: str) -> ServedVoice:
    """Load one version of the voice, and let it speak if that needs nobody's tensors.

    Raise ValueError if its bundle is corrupt, or unsigned though signatures are required, if the
    graphs
    cannot be loaded or run, or if num2words is missing.
    """
    authority = folder.authority_of(version, accept_unsigned=settings.accept_unsigned)
    bundle = load_speech_bundle(folder.voices.bundles / version, authority=authority)
    check_everyones(bundle.manifest, version)
    voice = open_voice(bundle)
    for _ in voice.for_trial().stream(_TRIAL, longest_s=_TRIAL_S):
        pass
    return ServedVoice(version, bundle.manifest, voice)


def voices_of(folder: ServingFolder, served: ServedVoice, client: str) -> list[str]:
    """Return the voices that a client may ask for: its own if it has one, the shared one if any.

    A voice that is whole is everybody's.
    """
    if served.manifest.personal is None:
        return [SHARED_VOICE]
    own = [client] if folder.voices.person(served.version, client).is_file() else []
    return [*own, SHARED_VOICE] if served.voice.can_be_nobody else own


def voice_of(folder: ServingFolder, served: ServedVoice, client: str | None) -> Voice:
    """Return one client's voice; everybody's for None.

    Raises:
        NoSharedVoiceError: If everybody's is asked for and there is none.
        NoPersonalModelError: If the version needs a personal file and there is none.
        BundleError: If it is corrupt, unsigned though signatures are required, another person's, or
            not
            of this version.
    """
    if served.manifest.personal is None:
        return served.voice
    if client is None:
        if not served.voice.can_be_nobody:
            raise NoSharedVoiceError
        return served.voice.for_nobody()
    path = folder.voices.person(served.version, client)
    if not path.is_file():
        raise NoPersonalModelError
    own = load_file_of(client, path, authority=folder.authority_certificate())
    return own.on(served.voice, served.manifest)


def voice_shelf(folder: ServingFolder, settings: ServeSettings) -> Shelf[ServedVoice]:
    """Return an empty shelf for the voices of a folder."""

    def load(name: str, held: ServedVoice | None) -> ServedVoice:
        return load_voice(folder, settings, name) if held is None else held

    return Shelf(folder.voices, load, what="voice", allowed='model must be "voice" or one of')
