"""Hold the models that are served, and exchange them while requests are under way.

A request takes the version it begins with and keeps it to its end, whatever happens on disk
meanwhile: everything of a version is in memory. A new version is loaded and asked once before
anybody gets it; if that fails, the old one goes on.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from export.bundle import load_bundle
from export.bundle_files import open_files
from export.manifest import CONTENT_FILES, Manifest
from export.next_word import NextWords
from export.people_file import MadePeople, load_people_file
from export.personal_ranking import PersonalRanking
from export.runtime import NextWordGraph
from export.serve.folder import ServingError, ServingFolder
from export.serve.settings import ServeSettings
from export.serve.versions import read_versions
from export.signed_files import SIGNED_NAMES, read_checked
from export.strip import read_blocklist
from export.word_index import WordIndex
from models.vocabulary import Vocabulary

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServedModel:
    """Hold one version in memory.

    Attributes:
        version: Its name.
        manifest: What it is.
        vocabulary: The words of its rows.
        index: Their index, shared by every text.
        ranking: What ranks them, without blocked ones.
        graph: What everyone shares.
        made: What makes people's own parts where they have no file; None where nothing does.
    """

    version: str
    manifest: Manifest
    vocabulary: Vocabulary
    index: WordIndex
    ranking: PersonalRanking
    graph: NextWordGraph
    made: MadePeople | None = None


class UnknownVersionError(ValueError):
    """Raised when a version is asked for that is not served."""


class NothingServedError(Exception):
    """Raised when no version has been promoted yet."""


def load_version(folder: ServingFolder, settings: ServeSettings, version: str) -> ServedModel:
    """Load one version and ask it once.

    Raises:
        ValueError: If its bundle is corrupt, or unsigned where that is not accepted; or if the
            graph cannot be loaded or run.
        OSError: If it cannot be read.
    """
    authority = folder.authority_certificate()
    if authority is None and not settings.accept_unsigned:
        raise ServingError(
            f"{folder.authority} must be there to check who signed {version}; put the "
            "federation's authority.crt there, or set accept_unsigned"
        )
    bundle = load_bundle(folder.bundles / version, authority=authority)
    index = WordIndex(bundle.vocabulary)
    graph = NextWordGraph(bundle.graph)
    if bundle.manifest.client is not None:
        raise ServingError(
            f"{version} is {bundle.manifest.client}'s whole model and may not be served to "
            "everyone; promote the bundle that all share, with --people"
        )
    nobody = {name: np.zeros(shape, np.float32) for name, shape in graph.personal_shapes.items()}
    NextWords(graph.for_person(nobody), bundle.vocabulary, index=index).suggest("")
    ranking = _ranking(folder, bundle.vocabulary, index)
    made = _made_people(folder, version, graph, bundle.manifest)
    return ServedModel(version, bundle.manifest, bundle.vocabulary, index, ranking, graph, made)


def _made_people(
    folder: ServingFolder, version: str, graph: NextWordGraph, manifest: Manifest
) -> MadePeople | None:
    """Return what makes people of everybody's file, where there is one for the version."""
    if not folder.everybody(version).exists():
        return None
    everybody = load_people_file(
        folder.everybody(version), authority=folder.authority_certificate()
    )
    return everybody.on(graph, manifest)


def _ranking(folder: ServingFolder, vocabulary: Vocabulary, index: WordIndex) -> PersonalRanking:
    """Return what ranks words for everyone: the server keeps nobody's own words."""
    blocked = read_blocklist(folder.blocklist) if folder.blocklist.exists() else ()
    return PersonalRanking(vocabulary, index, blocked=blocked)


@dataclass(frozen=True)
class _Served:
    """Hold everything that is served at one moment, so that nobody sees half a change."""

    present: str | None
    models: Mapping[str, ServedModel]


class Shelf:
    """Hold the version that is served and the one before it; readers never wait."""

    def __init__(self, folder: ServingFolder, settings: ServeSettings) -> None:
        """Begin with nothing; ``reload`` fills it."""
        self._folder = folder
        self._settings = settings
        self._served = _Served(None, {})

    @property
    def present(self) -> ServedModel:
        """Return the version that everyone gets.

        Raises:
            NothingServedError: If there is none yet.
        """
        served = self._served
        if served.present is None:
            raise NothingServedError
        return served.models[served.present]

    @property
    def versions(self) -> list[str]:
        """Return the names of what is served, the present one first."""
        served = self._served
        return sorted(served.models, key=lambda name: name != served.present)

    def version(self, name: str | None) -> ServedModel:
        """Return one version; None is the present one.

        Raises:
            UnknownVersionError: If it is not served.
            NothingServedError: If none is.
        """
        if name is None:
            return self.present
        model = self._served.models.get(name)
        if model is None:
            known = ", ".join(self.versions) or "none yet"
            raise UnknownVersionError(f"version must be one of: {known}; got {name[:80]!r}")
        return model

    def read_file(self, served: ServedModel, name: str) -> bytes:
        """Return one of the files that a version's manifest pins.

        Raises:
            BundleError: If it is no longer what the manifest says.
            OSError: If it cannot be read.
        """
        files = open_files(self._folder.bundles / served.version, (*SIGNED_NAMES, *CONTENT_FILES))
        return read_checked(files, served.manifest.files, name)

    def reload(self) -> None:
        """Serve what the folder says from now on, and forget what it no longer names.

        Where the version before cannot be loaded any more, the log says so and it is not served.

        Raises:
            ValueError: If the present version cannot be served; what was served goes on.
            OSError: The same.
        """
        wanted = read_versions(self._folder)
        models: dict[str, ServedModel] = {}
        if wanted.present is not None:
            models[wanted.present] = self._held_or_loaded(wanted.present)
        if wanted.before is not None and wanted.before not in models:
            try:
                models[wanted.before] = self._held_or_loaded(wanted.before)
            except (ValueError, OSError) as error:
                _LOG.warning("version %s, served before, is gone: %s", wanted.before, error)
        self._served = _Served(wanted.present, models)

    def _held_or_loaded(self, name: str) -> ServedModel:
        held = self._served.models.get(name)
        if held is None:
            return load_version(self._folder, self._settings, name)
        return replace(
            held,
            ranking=_ranking(self._folder, held.vocabulary, held.index),
            made=_made_people(self._folder, name, held.graph, held.manifest),
        )
