"""The page is served to everyone, and a keyboard's files to its own client alone."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from export.bundles.keyboard_bundle import load_bundle
from export.bundles.manifest import CONTENT_FILES
from export.bundles.signed_files import SIGNED_NAMES
from export.making.keyboard import KeyboardKind
from export.making.released_model import export_bundle
from export.page.onnxruntime_web import runtime_files
from export.releases.release import read_authority, read_release
from export.serve.cli import main
from export.serve.folder.folder import ServingFolder
from export.serve.folder.settings import read_settings
from export.serve.running import make_desk
from models.text.vocabulary import Vocabulary
from models.vector.codec import FlatVector
from tests.export.conftest import Federation, write_release
from tests.export.serve.running_server import RunningServer, serving_folder, token_of


def _version(server: RunningServer, token: str) -> dict[str, Any]:
    found = server.get("/v1/keyboard", token).json["versions"]
    assert isinstance(found, list)
    version: dict[str, Any] = found[0]
    return version


def test_the_page_may_reach_its_own_server_and_nothing_else(server: RunningServer) -> None:
    found = server.get("/")

    assert found.status == 200
    assert found.headers["content-type"] == "text/html; charset=utf-8"
    policy = found.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert found.headers["x-content-type-options"] == "nosniff"
    assert server.get("/service_worker.js").headers["content-type"].startswith("text/javascript")


def test_a_file_that_the_browser_has_is_not_sent_again(server: RunningServer) -> None:
    first = server.get("/page/main.js")

    again = server.ask("GET", "/page/main.js", headers={"If-None-Match": first.headers["etag"]})

    assert first.headers["cache-control"] == "no-cache"
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/page/",
        "/page/absent.js",
        "/page/../site.py",
        "/page/%2e%2e/%2e%2e/site.py",
        "/page/..%2fsite.py",
        "/page//etc/passwd",
        "/page/index.html",
        "/index.html/../../serve.toml",
    ],
)
def test_the_page_s_address_reaches_no_other_file(server: RunningServer, path: str) -> None:
    assert server.get(path).status == 404


def test_onnxruntime_comes_compressed_and_stays(server: RunningServer) -> None:
    if not runtime_files():
        pytest.skip("onnxruntime-web is missing: run `make page` to test how it is served")
    path = "/page/onnxruntime-web-1.30.0/ort-wasm-simd-threaded.wasm"

    plain = server.get(path)
    small = server.ask("GET", path, headers={"Accept-Encoding": "gzip"})

    assert plain.headers["content-type"] == "application/wasm"
    assert "immutable" in plain.headers["cache-control"]
    assert small.headers["content-encoding"] == "gzip"
    assert len(small.body) < len(plain.body) / 3


def test_a_server_without_onnxruntime_tells_its_operator_which_command_is_missing(
    tmp_path: Path,
    bundles: dict[int, Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = serving_folder(tmp_path / "folder", bundles[3])
    # As in a wheel that was built before `make page`.
    monkeypatch.setattr("export.serve.running.runtime_files", dict)

    desk = make_desk(folder, read_settings(folder.settings))
    desk.threads.shutdown()
    desk.voices.shut_down()

    assert b"ONNXRUNTIME = null" in desk.page["page/source.js"].content
    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "run `sotto-serve fetch`, which needs npm, and start again" in told


def test_a_client_gets_the_files_that_its_bundle_holds(
    server: RunningServer, ann: str, bundles: dict[int, Path]
) -> None:
    bundle = load_bundle(bundles[3])
    version = _version(server, ann)
    place = f"/v1/keyboard/{version['version']}"

    model = server.get(f"{place}/model.onnx", ann)
    words = server.get(f"{place}/vocabulary.txt", ann)

    assert model.body == bundle.graph
    assert words.body == bundle.vocabulary.to_bytes()
    assert version["files"]["model.onnx"]["sha256"] == hashlib.sha256(model.body).hexdigest()
    assert version["round"] == 3
    promised = {"mode": "none", "guarantee": "no privacy guarantee"}
    assert version["privacy"] == promised | {"epsilon": None, "delta": None}
    assert version["privacy_spent"] == "none promised"
    assert version["languages"] == ["en"]
    assert version["never"] == [0, 1]
    assert version["personal"] is None
    found = server.get("/v1/keyboard", ann).json
    assert (found["client"], found["voice"]) == ("ann", None)


@pytest.mark.slow
def test_a_device_fetches_the_bundle_that_its_coordinator_signed(
    *,
    tmp_path: Path,
    vocabulary: Vocabulary,
    parameters: FlatVector,
    federation: Federation,
) -> None:
    coordinator, authority = federation.coordinator, federation.folder / "authority/authority.crt"
    figures = {"metrics": {"top3_recall": 0.2}}
    write_release(tmp_path / "release", vocabulary, parameters, signer=coordinator, changes=figures)
    signed = tmp_path / "signed.zip"
    export_bundle(
        KeyboardKind(), read_release(tmp_path / "release"), signed, signed_with=coordinator
    )
    folder = ServingFolder(tmp_path / "serving")
    assert main(["init", str(folder.root), "--authority", str(authority)]) == 0
    assert main(["promote", str(folder.root), str(signed)]) == 0
    settings = folder.settings.read_text()
    folder.settings.write_text(settings.replace("8080", "0").replace("8082", "0"))
    token = token_of(folder, "ann")

    server = RunningServer(folder, tmp_path / "log")
    place = f"/v1/keyboard/{_version(server, token)['version']}"
    (tmp_path / "fetched").mkdir()
    for name in (*SIGNED_NAMES, *CONTENT_FILES):
        (tmp_path / "fetched" / name).write_bytes(server.get(f"{place}/{name}", token).body)
    assert server.stop() == 0

    der = read_authority(authority)
    assert load_bundle(tmp_path / "fetched", authority=der) == load_bundle(signed, authority=der)


def test_a_model_is_fetched_once_but_never_from_another_client_s_cache(
    server: RunningServer, ann: str
) -> None:
    path = f"/v1/keyboard/{_version(server, ann)['version']}/model.onnx"
    first = server.get(path, ann)
    has_it = {"If-None-Match": first.headers["etag"]}

    assert first.headers["cache-control"] == "private, max-age=31536000, immutable"
    assert first.headers["vary"] == "Authorization"
    assert server.ask("GET", path, token=ann, headers=has_it).status == 304
    assert server.ask("GET", path, headers=has_it).status == 401


@pytest.mark.parametrize("token", [None, "sotto_wrong", ""])
@pytest.mark.parametrize("name", ["", "/{}/model.onnx", "/{}/personal.safetensors"])
def test_nobody_gets_a_file_without_a_token(
    server: RunningServer, ann: str, token: str | None, name: str
) -> None:
    path = "/v1/keyboard" + name.format(_version(server, ann)["version"])

    assert server.get(path, token).status == 401


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("000001-absent/model.onnx", 404),
        ("../../tokens.json", 404),
        ("{}/..%2f..%2ftokens.json", 404),
        ("{}/../../tokens.json", 404),
        ("{}/manifest.sig", 404),
        ("{}/serve.toml", 422),
        ("{}/", 404),
        ("%2e%2e/tokens.json", 422),
        ("{}%00/model.onnx", 404),
    ],
)
def test_a_client_gets_no_other_file_of_the_server(
    server: RunningServer, ann: str, path: str, status: int
) -> None:
    version = _version(server, ann)["version"]

    found = server.get("/v1/keyboard/" + path.format(version), ann)

    assert found.status == status
    assert b"clients" not in found.body


def test_a_model_for_everyone_has_no_person_s_tensors(server: RunningServer, ann: str) -> None:
    version = _version(server, ann)["version"]

    found = server.get(f"/v1/keyboard/{version}/personal.safetensors", ann)

    assert found.status == 404
    assert b"the same model for everyone" in found.body


def test_the_page_answers_get_alone(server: RunningServer) -> None:
    assert server.ask("POST", "/", b"{}").status == 405
    assert server.ask("DELETE", "/page/main.js").status == 405
