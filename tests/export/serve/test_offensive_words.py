"""Words of the shipped blocklists stay away over HTTP until the person asks for them."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from export.making.keyboard import KeyboardKind
from export.making.released_model import export_bundle
from export.releases.release import read_release
from export.runtime.strip import Slot, Strip
from models.settings.model import schema_of
from models.text.vocabulary import Vocabulary
from models.vector.codec import FlatVector
from tests.export.conftest import SETTINGS, WORDS, write_release
from tests.export.serve.conftest import new_client
from tests.export.serve.running_server import RunningServer, serving_folder
from tests.waiting import until

OFFENSIVE = tuple("shit" if word == "sea" else word for word in WORDS)
ROW = OFFENSIVE.index("shit")


class _Version(msgspec.Struct):
    """What the page is told of a version and this file asks for."""

    never: list[int]
    offensive: list[int]


@pytest.fixture
def server(tmp_path: Path, parameters: FlatVector) -> Iterator[RunningServer]:
    """A server of a model that always expects a word of the English list."""
    flat = parameters.copy()
    flat[schema_of(SETTINGS).slices["output.bias"]][ROW] = 50
    figures = {"metrics": {"top3_recall": 0.2}}
    write_release(tmp_path / "release", Vocabulary(OFFENSIVE), flat, changes=figures)
    export_bundle(KeyboardKind(["en"]), read_release(tmp_path / "release"), tmp_path / "3.zip")
    folder = serving_folder(tmp_path / "folder", tmp_path / "3.zip")
    running = RunningServer(folder, tmp_path / "log")
    yield running
    assert running.stop() == 0


@pytest.mark.slow
def test_a_person_is_spared_offensive_words_and_can_allow_them(server: RunningServer) -> None:
    ann = new_client(server, "ann")

    spared = server.next(ann, "we ", count=10).words
    allowed = server.next(ann, "we ", offensive=True).words
    (version,) = msgspec.convert(server.get("/v1/keyboard", ann).json["versions"], list[_Version])

    assert len(spared) == 10
    assert "shit" not in spared
    assert allowed[0] == "shit"
    mended = msgspec.convert(
        server.next(ann, "we shjt", offensive=True).json["strip"], type=Strip
    ).centre
    assert mended == Slot("shit", "correction")
    assert "shit" not in str(server.next(ann, "we shjt").json["strip"])
    assert (version.never, version.offensive) == ([0, 1, ROW], [ROW])
    # A blocklist that leaves nothing is refused; what was served goes on.
    server.folder.blocklist.write_text("\n".join(OFFENSIVE))
    until(lambda: "must leave a word to suggest" in server.log.read_text())
    assert server.next(ann, "we ", count=10).words == spared
