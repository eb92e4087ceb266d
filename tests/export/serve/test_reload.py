"""A server goes on while what it serves is exchanged below it."""

import concurrent.futures
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from export.bundles.keyboard_bundle import load_bundle
from export.serve.cli import main
from tests.export.serve.conftest import new_client
from tests.export.serve.running_server import RunningServer, serving_folder, token_of
from tests.waiting import until


@pytest.fixture
def server(tmp_path: Path, bundles: dict[int, Path]) -> Iterator[RunningServer]:
    """A server of round 3 of its own, without a limit on how often a client asks."""
    changes = {
        "requests_per_second = 30.0": "requests_per_second = 1e6",
        "burst = 60": "burst = 10000",
    }
    server = RunningServer(
        serving_folder(tmp_path / "folder", bundles[3], changes=changes), tmp_path / "log"
    )
    yield server
    assert server.stop() == 0


@pytest.fixture
def ann(server: RunningServer) -> str:
    return new_client(server, "ann")


def first_word(server: RunningServer, token: str, **more: object) -> str:
    return server.next(token, "see ", **more).words[0]


def promote(server: RunningServer, bundle: Path) -> None:
    assert main(["promote", str(server.folder.root), str(bundle), "--largest-loss", "50"]) == 0


@pytest.mark.slow
def test_versions_are_exchanged_under_load_and_no_request_is_dropped(
    server: RunningServer, ann: str, bundles: dict[int, Path]
) -> None:
    stop = threading.Event()
    seen: list[tuple[int, str]] = []

    def ask() -> None:
        while not stop.is_set():
            found = server.next(ann, "see ")
            seen.append((found.status, found.words[0]))

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        asking = [threads.submit(ask) for _ in range(4)]
        until(lambda: (200, "go") in seen)
        promote(server, bundles[4])
        until(lambda: (200, "we") in seen)
        promote(server, bundles[5])
        until(lambda: (200, "a") in seen)
        assert main(["rollback", str(server.folder.root)]) == 0
        until(lambda: first_word(server, ann) == "we")
        stop.set()
        for one in asking:
            one.result()

    assert {status for status, _ in seen} == {200}
    assert {word for _, word in seen} == {"go", "we", "a"}


@pytest.mark.slow
def test_a_folder_that_could_not_be_looked_at_is_looked_at_again(
    server: RunningServer, ann: str
) -> None:
    blocklist = server.folder.blocklist
    content = blocklist.read_bytes() if blocklist.exists() else None
    blocklist.unlink(missing_ok=True)
    blocklist.symlink_to(blocklist.name)  # A loop, which no stat gets through.
    until(lambda: "the folder cannot be looked at" in server.log.read_text())

    assert main(["revoke", str(server.folder.root), "ann"]) == 0
    blocklist.unlink()
    if content is not None:
        blocklist.write_bytes(content)

    until(lambda: server.next(ann, "").status == 401)
    assert server.log.read_text().count("the folder cannot be looked at") == 1


@pytest.mark.slow
def test_a_promotion_is_taken_over_once(
    server: RunningServer, ann: str, bundles: dict[int, Path]
) -> None:
    taken = 'sotto_reloads_total{outcome="served"}'
    until(lambda: taken in server.metrics())  # At the start nothing counts as seen.
    before = server.metric(taken)

    promote(server, bundles[4])
    until(lambda: first_word(server, ann) == "we")
    for name in ("bob", "eve"):  # A token that is known shows that the server looked once more.
        new_client(server, name)

    assert server.metric(taken) == before + 1


@pytest.mark.slow
def test_the_version_before_is_served_to_who_asks_for_it(
    server: RunningServer, ann: str, bundles: dict[int, Path]
) -> None:
    before = str(server.next(ann, "").json["version"])

    promote(server, bundles[4])
    until(lambda: first_word(server, ann) == "we")

    assert first_word(server, ann, version=before) == "go"
    assert server.get(f"/v2/models/keyboard/versions/{before}/ready").status == 200
    promote(server, bundles[5])
    until(lambda: first_word(server, ann) == "a")
    assert server.next(ann, "", version=before).status == 404


@pytest.mark.slow
def test_a_version_that_cannot_be_loaded_leaves_the_old_one(
    server: RunningServer, ann: str, bundles: dict[int, Path]
) -> None:
    served = str(server.next(ann, "").json["version"])
    spoilt = bytearray(bundles[4].read_bytes())
    spoilt[len(spoilt) // 2] ^= 1
    (server.folder.bundles / "spoilt").write_bytes(spoilt)
    good = server.folder.versions.read_text()

    server.folder.versions.write_text(good.replace(served, "spoilt"))
    until(lambda: "versions are not taken over" in server.log.read_text())

    assert first_word(server, ann) == "go"
    assert server.get("/v2/health/ready").status == 200
    until(lambda: 'sotto_reloads_total{outcome="refused"} 1.0' in server.metrics())
    server.folder.versions.write_text("{")
    server.process.send_signal(signal.SIGHUP)
    until(lambda: "versions.json cannot be read" in server.log.read_text())
    assert first_word(server, ann) == "go"


@pytest.mark.slow
def test_a_blocklist_is_taken_over_while_the_server_runs(server: RunningServer, ann: str) -> None:
    before = server.next(ann, "see ").words

    server.folder.blocklist.write_text(f"{before[0]}\n{before[1]}\n")
    until(lambda: server.next(ann, "see ").words != before)

    assert before[0] not in server.next(ann, "see ", count=10).words
    strip = server.next(ann, "See. ").json["strip"]
    assert isinstance(strip, dict)
    assert strip["centre"] == {"text": before[2].capitalize(), "kind": "word"}


@pytest.mark.slow
def test_the_folder_of_a_version_can_vanish_while_it_is_served(
    server: RunningServer, ann: str, bundles: dict[int, Path]
) -> None:
    version = str(server.next(ann, "").json["version"])
    shutil.rmtree(server.folder.bundles)

    assert first_word(server, ann) == "go"
    bundle = load_bundle(bundles[3])
    place = f"/v1/keyboard/{version}"
    assert server.get(f"{place}/model.onnx", ann).body == bundle.graph
    assert server.get(f"{place}/vocabulary.txt", ann).body == bundle.vocabulary.to_bytes()
    assert first_word(server, ann, incognito=True) == "go"


@pytest.mark.slow
def test_a_server_without_a_version_says_so_until_there_is_one(
    tmp_path: Path, bundles: dict[int, Path]
) -> None:
    root = tmp_path / "empty"
    folder = serving_folder(root, bundles[3])
    folder.versions.unlink()
    server = RunningServer(folder, tmp_path / "empty.log")
    token = new_client_when_ready(server, bundles[3])

    assert first_word(server, token) == "go"
    assert server.stop() == 0


def new_client_when_ready(server: RunningServer, bundle: Path) -> str:
    assert server.get("/v2/health/live").status == 200
    assert server.get("/v2/health/ready").status == 503
    assert server.get("/v2/models/keyboard/ready").status == 503
    token = token_of(server.folder, "ann")
    until(lambda: server.next(token, "").status == 503)
    assert b"no keyboard is served here yet; promote one" in server.next(token, "").body
    promote(server, bundle)
    until(lambda: server.get("/v2/health/ready").status == 200)
    speech = {"model": "voice", "voice": "ann", "input": "Hi."}
    silent = server.post("/v1/audio/speech", speech, token)
    assert silent.status == 503
    assert b"no voice is served here yet; promote one" in silent.body
    return token
