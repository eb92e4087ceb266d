"""Everybody's embeddings in one file make the people that personal files hold."""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pytest

from export.bundles.files import open_files, write_files
from export.bundles.keyboard_bundle import Bundle, load_bundle
from export.bundles.manifest_entries import BundleError, FileDigest
from export.bundles.signed_files import MANIFEST_FILE, SIGNED_NAMES
from export.cli import main
from export.faces.family import ExportError
from export.making.everybody import export_everybody
from export.making.keyboard import KeyboardKind
from export.making.person_of_release import export_people
from export.making.released_model import export_bundle
from export.people.people_file import (
    MAKER_FILE,
    NAMES_FILE,
    PEOPLE_FILES,
    PeopleManifest,
    encode_people,
    load_people_file,
    write_people_file,
)
from export.people.personal_file import load_personal_file
from export.releases.release import Release, read_release
from export.runtime.word_graph import NextWordGraph
from models.settings.model import GruLmSettings
from models.settings.personalisation import FedTpSettings, PFedHnSettings
from models.text.vocabulary import Vocabulary
from tests.export.conftest import WORDS, Federation, found_federation, plan_of
from tests.export.people_scene import FEDTP, PEOPLE, PERSONAL_SETTINGS, release_with_people


@dataclass(frozen=True)
class Run:
    """A run's release, its bundle, and everybody's file."""

    release: Release
    bundle: Bundle
    everybody: Path


def _run(folder: Path, release: Release) -> Run:
    export_bundle(KeyboardKind(), release, folder / "shared.zip")
    export_everybody(release, folder / "people.zip")
    return Run(release, load_bundle(folder / "shared.zip"), folder / "people.zip")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Run:
    folder = tmp_path_factory.mktemp("people")
    return _run(folder, release_with_people(folder, vocabulary))


@pytest.fixture(scope="module")
def whole_models(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Run:
    """A run whose method makes all of everybody's GRU, gates in another order than the graph's."""
    folder = tmp_path_factory.mktemp("whole")
    model = GruLmSettings(vocabulary_size=len(WORDS), hidden_size=4)
    method = PFedHnSettings(hypernetwork=FEDTP.hypernetwork)
    plan = plan_of(model, vocabulary, personalisation=method)
    return _run(folder, release_with_people(folder, vocabulary, plan=plan))


@pytest.fixture(scope="module")
def spectral(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Run:
    """A run whose hypernetwork's layers divide their matrices."""
    folder = tmp_path_factory.mktemp("spectral")
    hypernetwork = msgspec.structs.replace(FEDTP.hypernetwork, spectral_norm=True)
    method = FedTpSettings(hypernetwork=hypernetwork)
    plan = plan_of(PERSONAL_SETTINGS, vocabulary, personalisation=method)
    return _run(folder, release_with_people(folder, vocabulary, plan=plan))


@pytest.mark.parametrize("which", ["run", "whole_models", "spectral"])
def test_who_is_made_is_who_is_in_the_personal_file(
    which: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    run: Run = request.getfixturevalue(which)
    graph = NextWordGraph(run.bundle.graph)
    made = load_people_file(run.everybody).on(graph, run.bundle.manifest)
    files = [(name, tmp_path / f"{name}.zip") for name in PEOPLE]
    export_people(run.release, files)

    assert made.names == sorted(PEOPLE)
    assert "eve" not in made
    for name, path in files:
        own = load_personal_file(path).on(graph, run.bundle.manifest).personal_inputs
        found = made.graph_of(name).personal_inputs
        assert found.keys() == own.keys()
        for tensor in own:
            np.testing.assert_allclose(found[tensor], own[tensor], rtol=1e-5, atol=1e-5)


def test_the_command_signs_and_a_flipped_bit_or_no_signature_is_refused(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    federation = found_federation(tmp_path / "federation")
    release_with_people(federation.folder, vocabulary, signer=federation.coordinator)
    target, authority = tmp_path / "people.zip", federation.authority.certificate
    assert main(["people", str(federation.folder), "--out", str(target)]) == 0
    assert load_people_file(target, authority=authority).signer is not None
    assert main(["inspect", str(target)]) == 0
    content = bytearray(target.read_bytes())
    content[content.index(b"ada\n")] ^= 1
    target.write_bytes(content)

    with pytest.raises(BundleError, match=r"cannot be read|SHA-256 of clients.txt"):
        load_people_file(target, authority=authority)


def test_an_unsigned_file_is_refused_where_an_authority_is_given(
    run: Run, federation: Federation
) -> None:
    with pytest.raises(BundleError, match=r"manifest.sig must be in the bundle"):
        load_people_file(run.everybody, authority=federation.authority.certificate)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"run": "f" * 32}, "run of everybody's file must be"),
        ({"method": "pfedhn"}, "method of everybody's file must be fedtp"),
        ({"schema_sha256": "0" * 64}, "schema of everybody's file must be"),
        ({"hypernetwork": {"embedding_size": 3, "hidden_size": 5}}, "must make"),
    ],
)
def test_a_file_of_another_run_or_model_is_refused(
    run: Run, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    files = open_files(run.everybody, (*SIGNED_NAMES, *PEOPLE_FILES))
    contents = {name: files.read(name, limit_bytes=1 << 20) for name in files.names}
    manifest = msgspec.json.decode(contents[MANIFEST_FILE]) | change
    other = tmp_path / "other.zip"
    write_files(other, contents | {MANIFEST_FILE: msgspec.json.encode(manifest)})

    with pytest.raises(BundleError, match=message):
        load_people_file(other).on(NextWordGraph(run.bundle.graph), run.bundle.manifest)


@pytest.mark.parametrize("damage", ["places", "shape", "nan", "names"])
def test_numbers_that_do_not_fit_are_refused(run: Run, tmp_path: Path, damage: str) -> None:
    good = load_people_file(run.everybody)
    embeddings = {name: good.embeddings[row].copy() for name, row in good.rows.items()}
    phi, places = good.phi.copy(), {name: held.copy() for name, held in good.places.items()}
    if damage == "places":
        next(iter(places.values())).flat[0] = -1
    elif damage == "shape":
        places.pop(next(iter(places)))
    elif damage == "nan":
        phi[:] = 1e30
    contents = encode_people(embeddings, phi, places)
    if damage == "names":
        contents[NAMES_FILE] = b"ben\nada\n"
    digests = {name: FileDigest.of(content) for name, content in contents.items()}
    manifest: PeopleManifest = msgspec.structs.replace(good.manifest, files=digests)
    target = tmp_path / "people.zip"
    write_people_file(target, manifest, contents)

    with pytest.raises(BundleError, match=f"finite|must make|lie in 0|{NAMES_FILE}|{MAKER_FILE}"):
        loaded = load_people_file(target)
        loaded.on(NextWordGraph(run.bundle.graph), run.bundle.manifest).graph_of("ada")


def test_a_run_with_one_model_for_everyone_has_no_such_file(
    release_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match="one model for everyone"):
        export_everybody(read_release(release_folder), tmp_path / "people.zip")
