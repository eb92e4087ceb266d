"""A server makes people of their embeddings; a file of their own goes before."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from export.bundles.files import open_files, write_files
from export.bundles.manifest_entries import FileDigest
from export.bundles.signed_files import MANIFEST_FILE, SIGNED_NAMES
from export.making.everybody import export_everybody
from export.making.keyboard import KeyboardKind
from export.making.released_model import export_bundle
from export.people.people_file import (
    PEOPLE_FILES,
    encode_people,
    load_people_file,
    write_people_file,
)
from export.people.personal_file import load_personal_file, write_personal_file
from export.serve.cli import main
from export.serve.folder.folder import ServingFolder
from export.serve.folder.tokens import make_tokens
from export.serve.folder.versions import read_versions
from models.text.vocabulary import Vocabulary
from tests.export.conftest import RUN
from tests.export.people_scene import release_with_people
from tests.export.serve.loaded.test_people import TEXT, UNLIMITED, Federation
from tests.export.serve.running_server import RunningServer, serving_folder
from tests.waiting import until


def only_ada(everybody: Path, target: Path) -> Path:
    """Write the file of everybody's embeddings again with ada's alone."""
    whole = load_people_file(everybody)
    contents = encode_people({"ada": whole.embeddings[0]}, whole.phi, whole.places)
    digests = {name: FileDigest.of(content) for name, content in contents.items()}
    manifest = msgspec.structs.replace(whole.manifest, files=digests)
    write_people_file(target, manifest, contents)
    return target


def serving_two_versions(
    root: Path, run: Federation, vocabulary: Vocabulary, tmp_path: Path
) -> ServingFolder:
    """Make a folder with two versions, both with everybody's file."""
    more = ["--metric", "perplexity", "--people", str(run.shared.parent / "everybody.zip")]
    folder = serving_folder(root, run.shared, more=more, changes=UNLIMITED)
    release = release_with_people(tmp_path / "next", vocabulary)
    export_bundle(KeyboardKind(["en", "de"]), release, tmp_path / "next.zip")
    assert main(["promote", str(root), str(tmp_path / "next.zip"), *more]) == 0
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Federation:
    folder = tmp_path_factory.mktemp("federation")
    made = Federation(folder, vocabulary)
    export_everybody(release_with_people(folder / "again", vocabulary), folder / "everybody.zip")
    return made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, run: Federation) -> Iterator[RunningServer]:
    """A server on which one person's tensors are held at a time."""
    tmp_path = tmp_path_factory.mktemp("serving")
    everybody = run.shared.parent / "everybody.zip"
    text = tmp_path / "text"
    text.write_text("we see the sea. " * 30)
    more = ["--people", str(everybody), "--held-out", str(text)]
    folder = serving_folder(tmp_path / "folder", run.shared, more=more, changes=UNLIMITED)
    server = RunningServer(folder, tmp_path / "log")
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def tokens(server: RunningServer) -> Mapping[str, str]:
    made = make_tokens(server.folder, ["ada", "ben", "cat"])
    until(lambda: server.next(made["cat"], "").status != 401)
    return made


@pytest.mark.slow
def test_everyone_is_made_when_they_ask_and_nobody_else_is(
    server: RunningServer, run: Federation, tokens: Mapping[str, str]
) -> None:
    for name in ("ada", "ben", "ada"):
        assert server.next(tokens[name], TEXT, count=10).words == run.words[name]
        assert server.metric("sotto_personal_models") == 1

    assert server.next(tokens["cat"], TEXT).status == 404


@pytest.mark.slow
def test_a_file_of_ones_own_goes_before_what_is_made(
    server: RunningServer, run: Federation, tokens: Mapping[str, str], tmp_path: Path
) -> None:
    # Ada's file holds what is made for ben, so the two can be told apart.
    bens = load_personal_file(run.people / "ben.zip")
    manifest = msgspec.structs.replace(bens.manifest, client="ada")
    write_personal_file(tmp_path / "ada.zip", manifest, bens.adapter)
    assert server.next(tokens["ada"], TEXT, count=10).words == run.words["ada"]
    version = str(server.next(tokens["ada"], TEXT).json["version"])

    assert main(["person", str(server.folder.root), str(tmp_path / "ada.zip")]) == 0
    assert server.next(tokens["ada"], TEXT, count=10).words == run.words["ben"]

    server.folder.person(version, "ada").unlink()
    assert server.next(tokens["ada"], TEXT, count=10).words == run.words["ada"]


@pytest.mark.slow
def test_who_is_no_longer_in_everybodys_file_is_not_made_any_more(
    server: RunningServer, run: Federation, tokens: Mapping[str, str], tmp_path: Path
) -> None:
    everybody = run.shared.parent / "everybody.zip"
    assert server.next(tokens["ben"], TEXT).status == 200
    without_ben = only_ada(everybody, tmp_path / "without-ben.zip")

    assert main(["person", str(server.folder.root), str(without_ben)]) == 0
    until(lambda: server.next(tokens["ben"], TEXT).status == 404)
    assert server.next(tokens["ada"], TEXT, count=10).words == run.words["ada"]
    assert server.metric("sotto_personal_models") == 1

    assert main(["person", str(server.folder.root), str(everybody)]) == 0
    until(lambda: server.next(tokens["ben"], TEXT).status == 200)
    assert server.next(tokens["ben"], TEXT, count=10).words == run.words["ben"]


@pytest.mark.slow
def test_who_is_withdrawn_has_no_model_on_the_version_before_either(
    run: Federation, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    folder = serving_two_versions(tmp_path / "folder", run, vocabulary, tmp_path)
    assert main(["person", str(folder.root), str(run.people / "ben.zip")]) == 0
    server = RunningServer(folder, tmp_path / "log")
    try:
        made = make_tokens(folder, ["ada", "ben"])
        before = read_versions(folder).before
        until(lambda: server.next(made["ben"], TEXT, version=before).status == 200)
        everybody = run.shared.parent / "everybody.zip"
        without_ben = only_ada(everybody, tmp_path / "without-ben.zip")

        assert main(["person", str(folder.root), str(without_ben)]) == 0

        until(lambda: server.next(made["ben"], TEXT, version=before).status == 404)
        until(lambda: server.next(made["ben"], TEXT).status == 404)
        assert server.next(made["ada"], TEXT, count=10, version=before).words == run.words["ada"]
    finally:
        assert server.stop() == 0
    left = {path.read_bytes() for path in folder.all_people.rglob("*.zip")}
    assert left == {without_ben.read_bytes()}


def test_while_somebody_is_withdrawn_the_version_before_has_a_file_of_everybody(
    run: Federation, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    folder = serving_two_versions(tmp_path / "folder", run, vocabulary, tmp_path)
    before = read_versions(folder).before
    assert before is not None
    without_ben = only_ada(run.shared.parent / "everybody.zip", tmp_path / "without-ben.zip")

    with ThreadPoolExecutor(1) as pool:
        withdrawal = pool.submit(main, ["person", str(folder.root), str(without_ben)])
        # Whoever looks finds one: a server that looked at another moment would turn ada away.
        while not withdrawal.done():
            assert folder.everybody(before).exists()

    assert withdrawal.result() == 0
    assert folder.everybody(before).read_bytes() == without_ben.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("spoilt", ["bundle", "everybody's file"])
def test_who_is_withdrawn_leaves_nothing_on_a_version_that_cannot_be_loaded(
    *,
    run: Federation,
    vocabulary: Vocabulary,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    spoilt: str,
) -> None:
    folder = serving_two_versions(tmp_path / "folder", run, vocabulary, tmp_path)
    before = read_versions(folder).before
    assert before is not None
    damaged = folder.bundles / before if spoilt == "bundle" else folder.everybody(before)
    damaged.write_bytes(damaged.read_bytes()[:-50])
    without_ben = only_ada(run.shared.parent / "everybody.zip", tmp_path / "without-ben.zip")
    capsys.readouterr()

    assert main(["person", str(folder.root), str(without_ben), "--json"]) == 0

    told = msgspec.json.decode(capsys.readouterr().out)
    assert told["withdrawn"] == ["ben"]
    assert told["versions_that_make_nobody"] == ([before] if spoilt == "bundle" else [])
    left = {path.read_bytes() for path in folder.all_people.rglob("*.zip")}
    assert left == {without_ben.read_bytes()}


def test_another_runs_everybody_is_never_promoted(
    run: Federation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, other = tmp_path / "folder", tmp_path / "other.zip"
    files = open_files(run.shared.parent / "everybody.zip", (*SIGNED_NAMES, *PEOPLE_FILES))
    contents = {name: files.read(name, limit_bytes=1 << 20) for name in files.names}
    contents[MANIFEST_FILE] = contents[MANIFEST_FILE].replace(RUN.encode(), b"f" * len(RUN))
    write_files(other, contents)
    assert main(["init", str(root), "--accept-unsigned"]) == 0

    assert main(["promote", str(root), str(run.shared), "--people", str(other)]) == 1

    assert "run of everybody's file must be" in capsys.readouterr().err
    assert not any((root / "people").iterdir())
