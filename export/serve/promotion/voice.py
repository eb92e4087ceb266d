"""Load and judge the voices of a folder, for promotions.

A voice is judged by a figure that both bundles name, such as the distance of its spectrograms from
real ones: to measure it takes recordings, which a server does not have.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from export.bundles.keyboard_bundle import load_speech_bundle
from export.bundles.manifest import BundleManifest
from export.bundles.manifest_entries import BundleError
from export.serve.folder.folder import ServingFolder
from export.serve.folder.settings import read_settings
from export.serve.loaded.voice_version import ServedVoice, load_voice, voice_of
from export.serve.promotion.changes import check_people, load_present
from export.serve.promotion.gate import believed_figure

METRIC = "perplexity"
"""Figure that compares voices unless another is named: e to the mel L1."""


class VoiceVersions:
    """Voices of a folder (`export.serve.promotion.changes.Versioned`)."""

    what = "voice"

    def __init__(self, folder: ServingFolder, people: Sequence[Path] = ()) -> None:
        self.shelf = folder.voices
        self.files = people
        self._folder = folder
        self._settings = read_settings(folder.settings)
        self.check_bundle: Callable[[Path], object] = load_speech_bundle

    def load(self, version: str) -> ServedVoice:
        """Load a version."""
        return load_voice(self._folder, self._settings, version)

    def load_copy(self, copy: str) -> ServedVoice:
        """Load a copy, and check the files beside it; a voice that is everybody's needs none."""
        new = self.load(copy)
        check_people(self.shelf.people(copy).glob("*"), partial(voice_of, self._folder, new))
        return new

    def check_of_carried(self, new: ServedVoice, _present: str | None) -> Callable[[Path], object]:
        """Return what checks that a file fits the copy."""

        def check(file: Path) -> None:
            if new.manifest.personal is None:
                raise BundleError("the new voice is the same for everyone")
            voice_of(self._folder, new, file.stem)

        return check

    def measure(
        self, metric: str, new: ServedVoice, version: str, present: str | None
    ) -> tuple[float | None, float, str]:
        """Believe the figures of both bundles."""

        def manifest_of(name: str) -> BundleManifest:
            return load_speech_bundle(self.shelf.bundles / name).manifest

        old, why_alone = load_present(manifest_of, present, offered=version, what=self.what)
        before = None if old is None else _figure(metric, old)
        return before, _figure(metric, new.manifest), why_alone


def _figure(metric: str, manifest: BundleManifest) -> float:
    return believed_figure(metric, manifest.metrics, round_number=manifest.round_number)
