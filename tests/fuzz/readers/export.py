"""Readers of exported models: bundles, people's files, releases, lists and graphs."""

import functools
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from export.bundles.files import open_files
from export.bundles.keyboard_bundle import Bundle, load_bundle, load_speech_bundle
from export.bundles.manifest import Manifest
from export.bundles.manifest_entries import BundleError, FileDigest
from export.bundles.signed_files import MANIFEST_FILE
from export.bundles.speech_manifest import SpeechManifest
from export.faces.family import ExportError
from export.graphs.registry import parse_graph
from export.making.everybody import export_everybody
from export.making.keyboard import KeyboardKind
from export.making.person_of_release import export_people
from export.making.released_model import export_bundle
from export.making.speech import VoiceKind
from export.people.adapter import Resting, decode_adapter, encode_adapter
from export.people.people_file import (
    MAKER_FILE,
    NAMES_FILE,
    PEOPLE_FILES,
    load_people_file,
    write_people_file,
)
from export.people.personal_file import kind_of, load_personal_file
from export.releases.release import read_authority, read_release
from export.runtime.personal_cache import CacheError, PersonalCache
from export.runtime.strip import read_blocklist
from export.runtime.word_graph import GraphError, NextWordGraph
from models.plan.release_record import ReleaseError
from models.text.vocabulary import Vocabulary
from privacy.identities.certificates import certificate_pem
from tests.export.conftest import SETTINGS, WORDS, random_parameters, write_release
from tests.export.people_scene import release_with_people
from tests.export.voices import speech_plan, speech_release
from tests.fuzz.parties import parties
from tests.fuzz.target import Prepared, Target, in_new_folders, of_bytes, of_file

_ADAPTER = {"personal.a": np.ones((3, 4), np.float32), "personal.b": np.ones(4, np.float32)}
_SHAPES = {name: tensor.shape for name, tensor in _ADAPTER.items()}


@dataclass(frozen=True)
class Scene:
    """A signed release with its bundle, and one with people, in files."""

    folder: Path
    bundle: Bundle
    shared: Bundle


@functools.cache
def scene() -> Scene:
    """Return what was exported, once in a process."""
    folder = Path(tempfile.mkdtemp())
    words, signer = Vocabulary(WORDS), parties().coordinator
    flat, figures = random_parameters(SETTINGS), {"metrics": {"top3_recall": 0.2}}
    write_release(folder / "release", words, flat, signer=signer, changes=figures)
    export_bundle(KeyboardKind(["en"]), read_release(folder / "release"), folder / "bundle.zip")
    people = release_with_people(folder, words)
    export_bundle(KeyboardKind(), people, folder / "shared.zip")
    export_people(people, [("ada", folder / "ada.zip")])
    export_everybody(people, folder / "people.zip")
    return Scene(folder, load_bundle(folder / "bundle.zip"), load_bundle(folder / "shared.zip"))


def targets() -> Iterator[Target]:
    """Yield this package's targets."""
    refused = (BundleError,)
    yield Target("export/manifest", refused, _manifests, ("json",))
    yield Target("export/speech-manifest", refused, _speech_manifest, ("json",))
    yield Target("export/bundle", refused, _zips(load_bundle, "bundle.zip"), ("zip",))
    names = ("bundle.zip", "ada.zip", "people.zip")
    yield Target("export/kind", refused, _zips(kind_of, *names), ("zip",))
    yield Target("export/personal-file", refused, _zips(_personal, "ada.zip"), ("zip",))
    yield Target("export/people-file", refused, _zips(_people, "people.zip"), ("zip",))
    yield Target("export/people-maker", refused, _people_file(MAKER_FILE))
    yield Target("export/people-names", refused, _people_file(NAMES_FILE), ("text",))
    for name, load in (("ada", load_personal_file), ("people", load_people_file)):
        whose = _folder_manifest(load, name)
        yield Target(f"export/manifest-of-{name}", refused, whose, ("json",))
    restings: tuple[Resting, ...] = ("float32", "int8")
    for resting in restings:
        encoded = encode_adapter(_ADAPTER, resting)
        read = functools.partial(decode_adapter, shapes=_SHAPES, resting=resting)
        yield Target(f"export/adapter-{resting}", refused, of_bytes(read, encoded), ("adapter",))
    yield Target("export/graph", (ExportError,), _graphs(parse_graph), ("graph",))
    yield Target("export/session", (GraphError,), _graphs(NextWordGraph), ("graph",))
    for name in ("release.json", "plan.json", "vocabulary.txt", "parameters.bin"):
        hostile = ("json",) if name.endswith(".json") else ("text",)
        yield Target(f"export/release/{name}", (ReleaseError,), _release(name), hostile)
    yield Target("export/authority", (ReleaseError,), _authority, ("pem",))
    words = of_file(read_blocklist, b"# never\ndamn\n")
    # Told on the command line as it stands: the list is a file of the command's own user.
    yield Target("export/blocklist", (ValueError,), words, ("text",))
    cache = PersonalCache()
    cache.learn("good morning to you")
    kept = of_bytes(PersonalCache.from_bytes, cache.to_bytes())
    yield Target("export/personal-cache", (CacheError,), kept, ("json",))


def _manifests(_folder: Path) -> Prepared:
    known = (scene().bundle, scene().shared)
    return Prepared(Manifest.decode, [one.manifest.encode() for one in known])


@functools.cache
def _voice() -> SpeechManifest:
    folder = Path(tempfile.mkdtemp())
    export_bundle(VoiceKind(), speech_release(folder, speech_plan()), folder / "voice.zip")
    return load_speech_bundle(folder / "voice.zip").manifest


def _speech_manifest(_folder: Path) -> Prepared:
    return Prepared(SpeechManifest.decode, [_voice().encode()])


def _zips(read: Callable[[Path], object], *names: str) -> Callable[[Path], Prepared]:
    def prepare(folder: Path) -> Prepared:
        seeds = [(scene().folder / name).read_bytes() for name in names]
        return of_file(read, *seeds, name="input.zip")(folder)

    return prepare


def _personal(path: Path) -> None:
    shared = scene().shared
    load_personal_file(path).on(_shared_graph(), shared.manifest)


def _people(path: Path) -> None:
    made = load_people_file(path).on(_shared_graph(), scene().shared.manifest)
    for name in made.names:
        made.graph_of(name)


def _people_file(name: str) -> Callable[[Path], Prepared]:
    """Return the reader of one file of everybody's, whose digest is the right one."""

    def prepare(folder: Path) -> Prepared:
        kept = open_files(scene().folder / "people.zip", (MANIFEST_FILE, *PEOPLE_FILES))
        files = {name: kept.read(name, limit_bytes=1 << 20) for name in PEOPLE_FILES}
        manifest = load_people_file(scene().folder / "people.zip").manifest
        path = folder / "people.zip"

        def read(content: bytes) -> None:
            changed = {**files, name: content}
            digests = {one: FileDigest.of(whole) for one, whole in changed.items()}
            write_people_file(path, msgspec.structs.replace(manifest, files=digests), changed)
            _people(path)

        return Prepared(read, [files[name]])

    return prepare


@functools.cache
def _shared_graph() -> NextWordGraph:
    return NextWordGraph(scene().shared.graph)


def _folder_manifest(read: Callable[[Path], object], name: str) -> Callable[[Path], Prepared]:
    """Return the reader of a bundle in a folder, of whose files the manifest changes."""

    def prepare(folder: Path) -> Prepared:
        with zipfile.ZipFile(scene().folder / f"{name}.zip") as archive:
            archive.extractall(folder / "bundle")
        manifest = folder / "bundle" / "manifest.json"

        def read_changed(content: bytes) -> object:
            manifest.write_bytes(content)
            return read(folder / "bundle")

        return Prepared(read_changed, [manifest.read_bytes()])

    return prepare


def _graphs(read: Callable[[bytes], object]) -> Callable[[Path], Prepared]:
    return lambda _folder: Prepared(read, [scene().bundle.graph])


def _release(name: str) -> Callable[[Path], Prepared]:
    def read(folder: Path, content: bytes) -> object:
        for path in (scene().folder / "release").iterdir():
            (folder / path.name).symlink_to(path)
        (folder / name).unlink()
        (folder / name).write_bytes(content)
        return read_release(folder)

    return lambda folder: Prepared(
        in_new_folders(read, folder), [(scene().folder / "release" / name).read_bytes()]
    )


def _authority(folder: Path) -> Prepared:
    return of_file(read_authority, certificate_pem(parties().authority.certificate))(folder)
