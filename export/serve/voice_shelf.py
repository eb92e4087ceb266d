"""Hold the voices that are served, and exchange them while they speak.

Who began with one version hears it to the end: everything of a version is in memory.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from export.manifest import BundleError
from export.personal_file import load_personal_file
from export.serve.folder import ServingError, ServingFolder
from export.serve.personal_models import NoPersonalModelError
from export.serve.settings import ServeSettings
from export.serve.shelf import NothingServedError, UnknownVersionError
from export.serve.versions import read_versions
from export.speech import Voice, open_voice
from export.speech_bundle import load_speech_bundle
from export.speech_manifest import SpeechManifest

_LOG = logging.getLogger(__name__)
# Has a number in it, so that what puts numbers into words is asked too.
_TRIAL = "1."
_TRIAL_S = 0.1


@dataclass(frozen=True)
class ServedVoice:
    """Hold one version in memory.

    Attributes:
        version: Its name.
        manifest: What it is.
        voice: What everyone shares.
    """

    version: str
    manifest: SpeechManifest
    voice: Voice


def load_voice(folder: ServingFolder, settings: ServeSettings, version: str) -> ServedVoice:
    """Load one version of the voice, and let it speak where it needs nobody's tensors for that.

    Raises:
        ValueError: If its bundle is corrupt, or unsigned where that is not accepted; or if the
            graphs cannot be loaded or run, or num2words is missing.
        OSError: If it cannot be read.
    """
    authority = folder.authority_certificate()
    if authority is None and not settings.accept_unsigned:
        raise ServingError(
            f"{folder.authority} must be there to check who signed {version}; put the "
            "federation's authority.crt there, or set accept_unsigned"
        )
    bundle = load_speech_bundle(folder.voices.bundles / version, authority=authority)
    if bundle.manifest.client is not None:
        raise ServingError(
            f"{version} is {bundle.manifest.client}'s whole voice and may not be served to "
            "everyone; promote the bundle that all share, with --people"
        )
    voice = open_voice(bundle)
    for _ in voice.for_trial().stream(_TRIAL, longest_s=_TRIAL_S):
        pass
    return ServedVoice(version, bundle.manifest, voice)


def voice_of(folder: ServingFolder, served: ServedVoice, client: str) -> Voice:
    """Return one client's voice.

    Raises:
        NoPersonalModelError: If the version needs a personal file and there is none.
        BundleError: If it is corrupt, unsigned where it must be signed, another person's, or not of
            this version.
        OSError: If it cannot be read.
    """
    if served.manifest.personal is None:
        return served.voice
    path = folder.voices.person(served.version, client)
    if not path.is_file():
        raise NoPersonalModelError
    own = load_personal_file(path, authority=folder.authority_certificate())
    if own.manifest.client != client:
        raise BundleError(f"{path} must be {client}'s, got {own.manifest.client[:80]}'s")
    return own.on(served.voice, served.manifest)


class VoiceShelf:
    """Hold the voice that is served and the one before it; readers never wait."""

    def __init__(self, folder: ServingFolder, settings: ServeSettings) -> None:
        """Begin with nothing; ``reload`` fills it."""
        self._folder = folder
        self._settings = settings
        # One tuple, so that nobody sees half a change.
        self._served: tuple[str | None, Mapping[str, ServedVoice]] = (None, {})

    def version(self, name: str | None) -> ServedVoice:
        """Return one version; None is the present one.

        Raises:
            UnknownVersionError: If it is not served.
            NothingServedError: If no voice is.
        """
        present, voices = self._served
        if present is None:
            raise NothingServedError
        found = voices.get(present if name is None else name)
        if found is None:
            raise UnknownVersionError(
                f'model must be "voice" or one of: {", ".join(sorted(voices))}; got {name!r:.80}'
            )
        return found

    def reload(self) -> None:
        """Serve what the folder says from now on, and forget what it no longer names.

        Raises:
            ValueError: If the present version cannot be served; what was served goes on.
            OSError: The same.
        """
        wanted = read_versions(self._folder.voices)
        voices: dict[str, ServedVoice] = {}
        if wanted.present is not None:
            voices[wanted.present] = self._held_or_loaded(wanted.present)
        if wanted.before is not None and wanted.before not in voices:
            try:
                voices[wanted.before] = self._held_or_loaded(wanted.before)
            except (ValueError, OSError) as error:
                _LOG.warning("voice %s, served before, is gone: %s", wanted.before, error)
        self._served = (wanted.present, voices)

    def _held_or_loaded(self, name: str) -> ServedVoice:
        held = self._served[1].get(name)
        return load_voice(self._folder, self._settings, name) if held is None else held
