"""A promotion takes nobody's own model away, except where it says so."""

from pathlib import Path

import msgspec
import pytest

from export.bundles.files import open_files, write_files
from export.bundles.manifest import CONTENT_FILES
from export.bundles.signed_files import MANIFEST_FILE, SIGNED_NAMES
from export.making.everybody import export_everybody
from export.making.keyboard import KeyboardKind
from export.making.person_of_release import export_people
from export.making.released_model import export_bundle
from export.people.personal_file import load_personal_file, write_personal_file
from export.serve.cli import main
from export.serve.folder.folder import ServingFolder
from export.serve.folder.versions import read_versions
from models.text.vocabulary import Vocabulary
from tests.export.conftest import RUN
from tests.export.people_scene import release_with_people
from tests.export.serve.promotion.test_keyboard import measuring, within_seconds
from tests.export.serve.running_server import serving_folder
from tests.export.serve.test_made_people import only_ada

Json = dict[str, object]
PEOPLE = ("ada", "ben", "cat")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Path:
    """Bundles of one run (``0.zip`` and ``1.zip``), of another, and three people's files."""
    folder = tmp_path_factory.mktemp("made")
    release = release_with_people(folder / "run", vocabulary, people=PEOPLE)
    for number in range(2):
        export_bundle(KeyboardKind(["en", "de"][:number]), release, folder / f"{number}.zip")
    files = open_files(folder / "1.zip", (*SIGNED_NAMES, *CONTENT_FILES))
    contents = {name: files.read(name, limit_bytes=1 << 24) for name in files.names}
    contents[MANIFEST_FILE] = contents[MANIFEST_FILE].replace(RUN.encode(), b"f" * len(RUN))
    write_files(folder / "foreign.zip", contents)
    for name in PEOPLE:
        (folder / name).mkdir()
    export_people(release, [(name, folder / name / f"{name}.zip") for name in PEOPLE])
    export_everybody(release, folder / "everybody.zip")
    (folder / "text").write_text("we see the sea. you can go. " * 20)
    return folder


@pytest.fixture
def folder(tmp_path: Path, made: Path) -> ServingFolder:
    """A folder that serves ada's and ben's files, ben's having been added later."""
    more = ["--metric", "perplexity", "--people", str(made / "ada")]
    folder = serving_folder(tmp_path / "serving", made / "0.zip", more=more)
    assert main(["person", str(folder.root), str(made / "ben" / "ben.zip")]) == 0
    return folder


def promoted(
    folder: ServingFolder, bundle: Path, capsys: pytest.CaptureFixture[str], *people: Path
) -> Json:
    """Promote a bundle with people; return the report."""
    given = [word for path in people for word in ("--people", str(path))]
    capsys.readouterr()
    asked = ["promote", str(folder.root), str(bundle), "--metric", "perplexity", "--json"]
    assert main([*asked, *given]) == 0
    return msgspec.json.decode(capsys.readouterr().out, type=Json)


def served_files(folder: ServingFolder) -> dict[str, bytes]:
    present = read_versions(folder).present
    assert present is not None
    return {path.name: path.read_bytes() for path in folder.people(present).iterdir()}


def test_files_are_carried_over_where_none_are_given(
    folder: ServingFolder, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = served_files(folder)
    assert set(before) == {"ada.zip", "ben.zip"}

    report = promoted(folder, made / "1.zip", capsys)

    assert served_files(folder) == before
    assert (report["carried"], report["not_carried"]) == (2, 0)


def test_what_does_not_fit_or_is_spoilt_stays_behind_and_is_told(
    folder: ServingFolder, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    present = read_versions(folder).present
    assert present is not None
    bens = folder.person(present, "ben")
    bens.write_bytes(bens.read_bytes()[:-30])

    report = promoted(folder, made / "1.zip", capsys)
    assert set(served_files(folder)) == {"ada.zip"}
    assert (report["carried"], report["not_carried"]) == (1, 1)
    assert str(report["because"]).startswith("ben.zip: ")

    report = promoted(folder, made / "foreign.zip", capsys)
    assert served_files(folder) == {}
    assert (report["carried"], report["not_carried"]) == (0, 1)
    assert "run of ada's file must be ffff" in str(report["because"])


def test_folders_that_are_given_take_the_place_of_all_personal_files(
    folder: ServingFolder, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["person", str(folder.root), str(made / "everybody.zip")]) == 0

    report = promoted(folder, made / "1.zip", capsys, made / "ada", made / "cat")

    assert set(served_files(folder)) == {"ada.zip", "cat.zip", "_everybody.zip"}
    assert (report["carried"], report["not_carried"]) == (1, 1)
    assert report["because"] == "ben.zip: is not among the personal files that were given"


def test_a_folder_and_everybodys_file_may_be_given_together(
    folder: ServingFolder, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    promoted(folder, made / "1.zip", capsys, made / "cat", made / "everybody.zip")

    assert served_files(folder) == {
        "cat.zip": (made / "cat" / "cat.zip").read_bytes(),
        "_everybody.zip": (made / "everybody.zip").read_bytes(),
    }
    twice = ["--people", str(made / "everybody.zip")] * 2
    assert main(["promote", str(folder.root), str(made / "0.zip"), *twice]) == 1
    assert "one file of everybody's embeddings at most" in capsys.readouterr().err
    twice = ["--people", str(made / "cat")] * 2
    assert main(["promote", str(folder.root), str(made / "0.zip"), *twice]) == 1
    assert "cat.zip must be in one folder of people, got two" in capsys.readouterr().err


def test_beside_everybodys_new_file_only_what_people_published_is_carried_over(
    folder: ServingFolder, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Ada and ben published, cat's was made by the coordinator; ben has left since.
    promoted(folder, made / "1.zip", capsys, made / "everybody.zip")
    for name in PEOPLE:
        own = load_personal_file(made / name / f"{name}.zip")
        origin = "generated" if name == "cat" else "published"
        manifest = msgspec.structs.replace(own.manifest, origin=origin)
        write_personal_file(tmp_path / f"{name}.zip", manifest, own.adapter)
        assert main(["person", str(folder.root), str(tmp_path / f"{name}.zip")]) == 0
    without_ben = only_ada(made / "everybody.zip", tmp_path / "without-ben.zip")

    report = promoted(folder, made / "0.zip", capsys, without_ben)

    assert set(served_files(folder)) == {"ada.zip", "_everybody.zip"}
    assert "ben.zip: everybody's file that was given no longer names ben" in str(report["because"])

    promoted(folder, made / "1.zip", capsys, made / "cat", made / "everybody.zip")
    report = promoted(folder, made / "0.zip", capsys, made / "everybody.zip")
    assert report["because"] == "cat.zip: everybody's file that was given makes it anew"


def test_who_is_added_while_a_promotion_measures_is_carried_over_too(
    folder: ServingFolder, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(folder.root)
    asked = ["promote", root, str(made / "1.zip"), "--held-out", str(made / "text")]

    with measuring(asked, monkeypatch, status=0):
        assert within_seconds(["person", root, str(made / "cat" / "cat.zip")]) == 0

    assert set(served_files(folder)) == {"ada.zip", "ben.zip", "cat.zip"}


def test_both_versions_are_judged_by_the_same_people(
    folder: ServingFolder, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The two bundles hold the same model, so with the same people their figures are the same.
    asked = ["promote", str(folder.root), str(made / "1.zip"), "--held-out", str(made / "text")]
    promote = [*asked, "--metric", "top1_recall", "--largest-loss", "100"]

    assert main([*promote, "--people", str(made / "cat")]) == 1
    assert "nobody has a model on the new version and on the present one" in capsys.readouterr().err
    assert main([*promote, "--people", str(made / "ben"), "--people", str(made / "cat")]) == 0

    reason = read_versions(folder).history[-1].reason
    new, present = reason.removeprefix("top1_recall ").split(", the present version has ")
    assert new == present
