"""People keep their models while the folders of their version come and go."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import numpy as np
import pytest

from export.making.everybody import export_everybody
from export.making.keyboard import KeyboardKind
from export.making.person_of_release import export_people
from export.making.released_model import export_bundle
from export.serve.folder.folder import ServingFolder
from export.serve.folder.settings import read_settings
from export.serve.folder.versions import Change, Versions, read_versions, write_versions
from export.serve.loaded.keyboard_version import ServedModel, keyboard_shelf
from export.serve.loaded.metrics import ServingMetrics
from export.serve.loaded.people import People
from export.serve.loaded.personal_models import NoPersonalModelError, OwnModels
from export.serve.loaded.shelf import Shelf
from export.serve.promotion.keyboard import promote
from models.text.vocabulary import Vocabulary
from tests.export.people_scene import PEOPLE, release_with_people
from tests.export.serve.running_server import serving_folder

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def household(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Path:
    """Three bundles of one run, which are three versions, and people for any of them."""
    folder = tmp_path_factory.mktemp("household")
    release = release_with_people(folder / "run", vocabulary)
    for number in range(3):
        export_bundle(KeyboardKind(["en", "de", "fr"][:number]), release, folder / f"{number}.zip")
    (folder / "people").mkdir()
    export_people(release, [(name, folder / "people" / f"{name}.zip") for name in PEOPLE])
    export_everybody(release, folder / "everybody.zip")
    return folder


def serving(tmp_path: Path, household: Path, people: str = "people") -> ServingFolder:
    more = ["--metric", "perplexity", "--people", str(household / people)]
    return serving_folder(tmp_path / "serving", household / "0.zip", more=more)


def exchange(folder: ServingFolder, household: Path, number: int) -> None:
    promote(
        folder,
        household / f"{number}.zip",
        metric="perplexity",
        held_out=None,
        people=[household / "people"],
        largest_loss=0,
    )


def shelf_of(folder: ServingFolder) -> Shelf[ServedModel]:
    shelf = keyboard_shelf(folder, read_settings(folder.settings))
    shelf.reload()
    return shelf


def models_of(folder: ServingFolder) -> OwnModels:
    return OwnModels(folder, ServingMetrics(), largest_bytes=1 << 20)


def test_two_promotions_at_once_take_no_file_from_who_is_still_asked(
    tmp_path: Path, household: Path
) -> None:
    folder = serving(tmp_path, household)
    served = shelf_of(folder).present  # What a server has that did not look yet.
    models = models_of(folder)

    exchange(folder, household, 1)
    exchange(folder, household, 2)

    assert models.load("ada", served).personal_inputs
    # A minute later the next promotion removes it.
    versions = read_versions(folder)
    past = (datetime.now(UTC) - timedelta(minutes=2)).isoformat(timespec="seconds")
    history = tuple(msgspec.structs.replace(change, at=past) for change in versions.history)
    write_versions(folder, msgspec.structs.replace(versions, history=history))
    exchange(folder, household, 0)
    exchange(folder, household, 1)
    kept = {versions.present, versions.before, served.version}
    assert {path.name for path in folder.bundles.iterdir()} == kept
    assert {path.name for path in folder.all_people.iterdir()} == kept


def test_who_is_in_memory_stays_there_when_the_version_leaves_the_disk(
    tmp_path: Path, household: Path
) -> None:
    folder = serving(tmp_path, household)
    shelf, models = shelf_of(folder), models_of(folder)
    own = models.load("ada", shelf.present)

    shutil.rmtree(folder.bundles)
    shutil.rmtree(folder.all_people)
    shelf.reload()

    assert models.load("ada", shelf.present) is own
    with pytest.raises(NoPersonalModelError):
        models.load("ben", shelf.present)  # Who never asked is nowhere any more.


def test_a_text_goes_with_the_model_it_stands_on(tmp_path: Path, household: Path) -> None:
    folder = serving(tmp_path, household)
    served = shelf_of(folder).present
    one = People(OwnModels(folder, ServingMetrics(), largest_bytes=1), kept_texts=10)
    both = People(models_of(folder), kept_texts=10)

    for people in (one, both):
        for name in ("ada", "ben"):
            people.suggest(name, served, "we s", count=3, keep=True)

    assert (len(one), len(both)) == (1, 2)
    both.forget_clients_but({"ben"})
    assert len(both) == 1


def test_whose_file_alone_is_taken_away_has_no_model_any_more(
    tmp_path: Path, household: Path
) -> None:
    folder = serving(tmp_path, household)
    served, models = shelf_of(folder).present, models_of(folder)
    models.load("ada", served)

    folder.person(served.version, "ada").unlink()

    for _ in range(2):
        with pytest.raises(NoPersonalModelError):
            models.load("ada", served)


def test_everybody_is_made_when_their_file_leaves_the_disk_with_its_version(
    tmp_path: Path, household: Path
) -> None:
    folder = serving(tmp_path, household, "everybody.zip")
    shelf, models = shelf_of(folder), models_of(folder)
    before = models.load("ada", shelf.present).personal_inputs

    shutil.rmtree(folder.all_people)
    shelf.reload()

    after = models_of(folder).load("ada", shelf.present).personal_inputs
    for name, tensor in before.items():
        np.testing.assert_array_equal(tensor, after[name])


def history(*served: tuple[str, int]) -> Versions:
    """Return what became of promotions, each so many seconds before ``NOW``."""
    versions = Versions()
    for version, seconds in served:
        at = (NOW - timedelta(seconds=seconds)).isoformat(timespec="seconds")
        done = versions.changed("promote", version, "asked for")
        change = Change(action="promote", version=version, at=at, reason="asked for")
        versions = msgspec.structs.replace(done, history=(*versions.history, change))
    return versions


@pytest.mark.parametrize(
    ("versions", "needed"),
    [
        (history(), set()),
        (history(("a", 5)), {"a"}),
        (history(("a", 900), ("b", 600), ("c", 300)), {"b", "c"}),
        (history(("a", 900), ("b", 600), ("c", 1)), {"a", "b", "c"}),
        (history(("a", 900), ("b", 600), ("c", 3), ("d", 2), ("e", 1)), {"a", "b", "c", "d", "e"}),
        (history(("a", 900), ("b", 600), ("c", 300), ("b", 1)), {"b", "c"}),
        (history(("a", 900), ("a", 1)), {"a"}),
    ],
)
def test_a_folder_is_needed_for_a_minute_after_its_version_was_replaced(
    versions: Versions, needed: set[str]
) -> None:
    assert versions.still_needed(NOW) == needed
