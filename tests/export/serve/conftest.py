"""One server for all tests that change nothing, and bundles of two rounds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from export.making.keyboard import KeyboardKind
from export.making.released_model import export_bundle
from export.releases.release import read_release
from models.settings.model import schema_of
from models.text.vocabulary import Vocabulary
from models.vector.codec import FlatVector
from tests.export.conftest import SETTINGS, WORDS, write_release
from tests.export.serve.running_server import RunningServer, serving_folder, token_of
from tests.waiting import until


@pytest.fixture(scope="session")
def bundles(
    tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary, parameters: FlatVector
) -> dict[int, Path]:
    """Bundles of rounds 3 and 4: the first always expects "go", the second always "we"."""
    folder = tmp_path_factory.mktemp("rounds")
    made = {}
    for round_number, favourite, recall, perplexity in (
        (3, "go", 0.20, 36.8),
        (4, "we", 0.21, 47.5),
        (5, "a", 0.15, 35.0),
    ):
        flat = parameters.copy()
        flat[schema_of(SETTINGS).slices["output.bias"]][WORDS.index(favourite)] = 50
        release = folder / f"release-{round_number}"
        figures = {"top3_recall": recall, "valid_perplexity": perplexity, "round_s": 0.5}
        changes = {"round": round_number, "metrics": figures}
        write_release(release, vocabulary, flat, changes=changes)
        made[round_number] = folder / f"{round_number}.zip"
        export_bundle(KeyboardKind(["en"]), read_release(release), made[round_number])
    return made


@pytest.fixture(scope="session")
def server(
    tmp_path_factory: pytest.TempPathFactory, bundles: dict[int, Path]
) -> Iterator[RunningServer]:
    """A server of round 3 on which clients may ask as often as they like."""
    root = tmp_path_factory.mktemp("serving")
    changes = {
        "requests_per_second = 30.0": "requests_per_second = 1e6",
        "burst = 60": "burst = 10000",
        "body_s = 10.0": "body_s = 60.0",
    }
    folder = serving_folder(root / "folder", bundles[3], changes=changes)
    server = RunningServer(folder, root / "log", is_forked=False)
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="session")
def ann(server: RunningServer) -> str:
    """A client's token."""
    return new_client(server, "ann")


def new_client(server: RunningServer, client: str) -> str:
    """Make a token and wait until the server knows it."""
    token = token_of(server.folder, client)
    until(lambda: server.next(token, "").status == 200)
    return token
