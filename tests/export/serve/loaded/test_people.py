"""Everyone gets their own model, and nobody another's."""

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from export.bundles.keyboard_bundle import Bundle, load_bundle
from export.making.keyboard import KeyboardKind
from export.making.person_of_release import export_people
from export.making.released_model import export_bundle
from export.people.personal_file import load_personal_file
from export.runtime.next_word import NextWords
from export.runtime.word_graph import NextWordGraph
from export.serve.cli import main
from export.serve.folder.tokens import make_tokens
from models.text.vocabulary import Vocabulary
from models.vector.tensor_file import decode_tensors
from tests.export.people_scene import release_with_people
from tests.export.serve.running_server import RunningServer, serving_folder
from tests.waiting import until

TEXT = "we see the "
UNLIMITED = {
    "personal_bytes = 536_870_912": "personal_bytes = 1",
    "requests_per_second = 30.0": "requests_per_second = 1e6",
    "burst = 60": "burst = 10000",
}


class Federation:
    """Hold the bundle that all share, and the personal files of ada and ben."""

    def __init__(self, folder: Path, vocabulary: Vocabulary) -> None:
        release = release_with_people(folder / "run", vocabulary)
        self.shared = folder / "shared.zip"
        export_bundle(KeyboardKind(), release, self.shared)
        self.whole = folder / "ada-whole.zip"
        export_bundle(KeyboardKind(), release, self.whole, client="ada")
        self.people = folder / "people"
        self.people.mkdir()
        targets = [(name, self.people / f"{name}.zip") for name in ("ada", "ben")]
        export_people(release, targets)
        bundle = load_bundle(self.shared)
        self.words = {name: self._words(bundle, name) for name, _ in targets}

    def _words(self, bundle: Bundle, name: str) -> list[str]:
        own = load_personal_file(self.people / f"{name}.zip")
        model = own.on(NextWordGraph(bundle.graph), bundle.manifest)
        keyboard = NextWords(model, bundle.vocabulary, slot_count=10)
        return [suggestion.word for suggestion in keyboard.suggest(TEXT)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Federation:
    made = Federation(tmp_path_factory.mktemp("federation"), vocabulary)
    assert made.words["ada"] != made.words["ben"]
    return made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, run: Federation) -> Iterator[RunningServer]:
    """A server on which one person's tensors are held at a time."""
    tmp_path = tmp_path_factory.mktemp("serving")
    folder = serving_folder(
        tmp_path / "folder",
        run.shared,
        more=["--people", str(run.people), "--held-out", str(_text(tmp_path))],
        changes=UNLIMITED,
    )
    server = RunningServer(folder, tmp_path / "log")
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def tokens(server: RunningServer) -> Mapping[str, str]:
    made = make_tokens(server.folder, ["ada", "ben", "cat"])
    until(lambda: server.next(made["cat"], "").status != 401)
    return made


def _text(tmp_path: Path) -> Path:
    text = tmp_path / "text"
    text.write_text("we see the sea. " * 30)
    return text


@pytest.mark.slow
def test_everyone_gets_their_own_words_by_turns(
    server: RunningServer, run: Federation, tokens: Mapping[str, str]
) -> None:
    server.next(tokens["ben"], TEXT)
    before = server.metric("sotto_personal_loads_total")

    for name in ("ada", "ben", "ada", "ben"):
        assert server.next(tokens[name], TEXT, count=10).words == run.words[name]
        assert server.metric("sotto_personal_models") == 1

    assert server.metric("sotto_personal_loads_total") == before + 4


@pytest.mark.slow
def test_who_has_no_file_is_told_so_until_there_is_one(
    server: RunningServer, run: Federation, tokens: Mapping[str, str], tmp_path: Path
) -> None:
    refused = server.next(tokens["cat"], TEXT)
    assert refused.status == 404
    assert b"sotto-serve person" in refused.body

    version = str(server.next(tokens["ada"], TEXT).json["version"])
    server.folder.person(version, "ben").unlink()
    assert server.next(tokens["ben"], TEXT).status == 404
    assert main(["person", str(server.folder.root), str(run.people / "ben.zip")]) == 0
    assert server.next(tokens["ben"], TEXT, count=10).words == run.words["ben"]


@pytest.mark.slow
def test_everyone_gets_the_file_of_their_own_tensors_and_no_other(
    server: RunningServer, run: Federation, tokens: Mapping[str, str]
) -> None:
    version = str(server.next(tokens["ada"], TEXT).json["version"])
    bundle = load_bundle(run.shared)
    for name in ("ada", "ben"):
        own = load_personal_file(run.people / f"{name}.zip")
        expected = own.on(NextWordGraph(bundle.graph), bundle.manifest).personal_inputs

        found = server.get(f"/v1/keyboard/{version}/personal.safetensors", tokens[name])

        assert found.headers["cache-control"] == "no-store"
        tensors, _ = decode_tensors(found.body)
        assert tensors.keys() == expected.keys()
        for tensor, values in expected.items():
            np.testing.assert_array_equal(tensors[tensor], values)


def test_who_has_no_file_is_told_so_by_the_description_of_their_keyboard(
    server: RunningServer, tokens: Mapping[str, str]
) -> None:
    version = str(server.next(tokens["ada"], TEXT).json["version"])

    for name, available in (("ada", True), ("cat", False)):
        versions = server.get("/v1/keyboard", tokens[name]).json["versions"]
        assert isinstance(versions, list)
        found = server.get(f"/v1/keyboard/{version}/personal.safetensors", tokens[name])
        assert found.status == (200 if available else 404)
        digest = hashlib.sha256(found.body).hexdigest() if available else None
        told = {"method": "fedtp", "available": available, "sha256": digest}
        assert versions[0]["personal"] == told


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["another's", "flipped", "cut"])
def test_a_file_that_is_not_hers_is_never_served(
    server: RunningServer, run: Federation, tokens: Mapping[str, str], damage: str
) -> None:
    version = str(server.next(tokens["ada"], TEXT).json["version"])
    hers = server.folder.person(version, "ada")
    content = bytearray(hers.read_bytes())
    if damage == "another's":
        content = bytearray((run.people / "ben.zip").read_bytes())
    elif damage == "flipped":
        content[len(content) // 2] ^= 1
    else:
        del content[len(content) // 2 :]
    hers.write_bytes(content)

    refused = server.next(tokens["ada"], TEXT)

    assert refused.status == 503
    assert b"suggestions" not in refused.body
    assert server.next(tokens["ben"], TEXT, count=10).words == run.words["ben"]
    assert main(["person", str(server.folder.root), str(run.people / "ada.zip")]) == 0
    assert server.next(tokens["ada"], TEXT, count=10).words == run.words["ada"]


def test_a_state_longer_than_the_model_reads_is_refused(
    server: RunningServer, tokens: Mapping[str, str]
) -> None:
    # The model reads eight words.
    asked = [
        {"name": "tokens", "shape": [1, 9], "datatype": "INT64", "data": [1] * 9},
        {"name": "k", "shape": [1], "datatype": "INT64", "data": [1]},
    ]

    found = server.post("/v2/models/keyboard/infer", {"inputs": asked}, tokens["ada"])

    assert found.status == 422
    assert "must be at most 8 words long, got 9" in str(found.json["error"])


def test_one_person_s_whole_model_is_never_everyone_s(
    server: RunningServer, run: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["promote", str(server.folder.root), str(run.whole)]) == 1

    assert "ada's whole model and may not be served to everyone" in capsys.readouterr().err


@pytest.mark.parametrize("foreign", ["name", "kind", "folder"])
def test_a_folder_of_people_holds_their_files_alone(
    tmp_path: Path, run: Federation, capsys: pytest.CaptureFixture[str], foreign: str
) -> None:
    people = tmp_path / "people"
    shutil.copytree(run.people, people)
    if foreign == "name":
        shutil.copy(people / "ada.zip", people / "eve.zip")
    elif foreign == "kind":
        (people / "notes.txt").write_text("hello")
    else:
        (people / "more").mkdir()
    root = tmp_path / "folder"
    assert main(["init", str(root), "--accept-unsigned"]) == 0

    asked = ["promote", str(root), str(run.shared), "--people", str(people)]
    assert main([*asked, "--metric", "perplexity"]) == 1

    told = capsys.readouterr().err
    assert "must be eve's, got ada's" in told or "personal file" in told
    assert not any((root / "people").iterdir())


def test_tensors_reach_the_client_s_own_model(
    server: RunningServer, run: Federation, tokens: Mapping[str, str], vocabulary: Vocabulary
) -> None:
    read = [1, *vocabulary.encode(TEXT.split())]
    asked = {
        "inputs": [
            {"name": "tokens", "shape": [1, len(read)], "datatype": "INT64", "data": read},
            {"name": "k", "shape": [1], "datatype": "INT64", "data": [12]},
        ],
        "outputs": [{"name": "words"}],
    }
    for name in ("ada", "ben"):
        found = server.post("/v2/models/keyboard/infer", asked, tokens[name]).json["outputs"]

        assert isinstance(found, list)
        ranked = [vocabulary.words[row] for row in found[0]["data"] if row > 1]
        assert ranked[:10] == run.words[name]
