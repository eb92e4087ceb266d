"""Load one version of the keyboard, and make it ready for everybody."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from export.blocked.blocked_words import blocked_words
from export.bundles.files import open_files
from export.bundles.keyboard_bundle import load_bundle
from export.bundles.manifest import BundleManifest, Manifest
from export.bundles.signed_files import SIGNED_NAMES, read_signed
from export.people.people_file import MadePeople, load_people_file
from export.runtime.corrections import Corrections
from export.runtime.next_word import NextWords
from export.runtime.personal_ranking import PersonalRanking, rankings
from export.runtime.strip import read_blocklist
from export.runtime.word_graph import NextWordGraph
from export.runtime.word_index import WordIndex
from export.serve.folder.folder import ServingError, ServingFolder
from export.serve.folder.settings import ServeSettings
from export.serve.loaded.shelf import Shelf
from models.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class ServedModel:
    """One version in memory.

    Attributes:
        index: The index of its words, shared by every text.
        ranking: The ranking of its words, without blocked ones.
        open_ranking: The same with those that only the shipped lists block, for people who say so.
        corrections: What mends slips.
        graph: The shared model.
        files: The bundle's files by name, for programs that suggest by themselves and for devices
            that make a person's own bundle of it.
        made: The source of the parts of people without a file; None if nothing makes them.
    """

    version: str
    manifest: Manifest
    vocabulary: Vocabulary
    index: WordIndex
    ranking: PersonalRanking
    open_ranking: PersonalRanking
    corrections: Corrections
    graph: NextWordGraph
    files: Mapping[str, bytes]
    made: MadePeople | None = None


def load_version(folder: ServingFolder, settings: ServeSettings, version: str) -> ServedModel:
    """Load one version with what makes its people, and ask it once.

    Raise ValueError if the bundle or everybody's file is corrupt, or unsigned though signatures are
    required, or if the graph cannot be loaded or run.
    """
    shared = load_shared(folder, settings, version)
    return replace(shared, made=made_people(folder, version, shared.graph, shared.manifest))


def load_shared(folder: ServingFolder, settings: ServeSettings, version: str) -> ServedModel:
    """Load the shared part of one version, and ask it once; errors as of ``load_version``."""
    authority = folder.authority_of(version, accept_unsigned=settings.accept_unsigned)
    bundle = load_bundle(folder.bundles / version, authority=authority)
    check_everyones(bundle.manifest, version)
    index = WordIndex(bundle.vocabulary)
    graph = NextWordGraph(bundle.graph)
    ranking, open_ranking = _rankings(folder, bundle.vocabulary, index, bundle.manifest)
    nobody = {name: np.zeros(shape, np.float32) for name, shape in graph.personal_shapes.items()}
    NextWords(graph.for_person(nobody), bundle.vocabulary, index=index).suggest("")
    names = (*SIGNED_NAMES, *bundle.files)
    files = {**bundle.files, **read_signed(open_files(folder.bundles / version, names))}
    return ServedModel(
        version,
        bundle.manifest,
        bundle.vocabulary,
        index,
        ranking,
        open_ranking,
        Corrections(bundle.vocabulary, languages=bundle.manifest.languages),
        graph,
        files,
    )


def check_everyones(manifest: BundleManifest, version: str) -> None:
    """Raise ServingError if a version is one person's whole model, and not everyone's."""
    if manifest.client is not None:
        raise ServingError(
            f"{version} is {manifest.client}'s whole model and may not be served to everyone; "
            "promote the bundle that all share, with --people"
        )


def made_people(
    folder: ServingFolder, version: str, graph: NextWordGraph, manifest: Manifest
) -> MadePeople | None:
    """Return what makes people of everybody's file, if the version has one.

    Raise BundleError if it is corrupt, unsigned though signatures are required, or of another run,
    method or schema.
    """
    if not folder.everybody(version).exists():
        return None
    everybody = load_people_file(
        folder.everybody(version), authority=folder.authority_certificate()
    )
    return everybody.on(graph, manifest)


def _rankings(
    folder: ServingFolder, vocabulary: Vocabulary, index: WordIndex, manifest: Manifest
) -> tuple[PersonalRanking, PersonalRanking]:
    """Return what ranks words for everyone, with the shipped lists of blocked words and without.

    The server keeps nobody's own words.
    """
    own = read_blocklist(folder.blocklist) if folder.blocklist.exists() else frozenset()
    return rankings(vocabulary, index, shipped=blocked_words(manifest.languages), own=own)


def keyboard_shelf(folder: ServingFolder, settings: ServeSettings) -> Shelf[ServedModel]:
    """Return an empty shelf for the keyboards of a folder."""

    def load(name: str, held: ServedModel | None) -> ServedModel:
        if held is None:
            return load_version(folder, settings, name)
        made = held.made
        if folder.people(name).is_dir():  # Else the version went from the disk and is still served.
            made = made_people(folder, name, held.graph, held.manifest)
        ranking, open_ranking = _rankings(folder, held.vocabulary, held.index, held.manifest)
        return replace(held, ranking=ranking, open_ranking=open_ranking, made=made)

    return Shelf(folder, load, what="keyboard", allowed="version must be one of")
