"""What one client may ask, and what happens to who asks more."""

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from export.serve.folder.tokens import make_tokens
from tests.export.serve.conftest import new_client
from tests.export.serve.running_server import RunningServer, serving_folder
from tests.waiting import until


@pytest.fixture(scope="module")
def strict(
    tmp_path_factory: pytest.TempPathFactory, bundles: dict[int, Path]
) -> Iterator[RunningServer]:
    """A server with a rate of one a second, and 5 at once."""
    root = tmp_path_factory.mktemp("strict")
    changes = {
        "requests_per_second = 30.0": "requests_per_second = 1.0",
        "burst = 60": "burst = 5",
        "body_s = 10.0": "body_s = 60.0",
    }
    server = RunningServer(
        serving_folder(root / "folder", bundles[3], changes=changes), root / "log"
    )
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def impatient(
    tmp_path_factory: pytest.TempPathFactory, bundles: dict[int, Path]
) -> Iterator[tuple[RunningServer, str]]:
    """A server that waits a second and a half for headers, and for a body; a client's token."""
    root = tmp_path_factory.mktemp("impatient")
    changes = {"body_s = 10.0": "body_s = 1.5"}
    folder = serving_folder(root / "folder", bundles[3], changes=changes)
    token = make_tokens(folder, ["slow"])["slow"]
    server = RunningServer(folder, root / "log")
    yield server, token
    assert server.stop() == 0


@pytest.mark.slow
def test_a_client_that_asks_too_often_waits_and_others_do_not(strict: RunningServer) -> None:
    hasty, calm = new_client(strict, "hasty"), new_client(strict, "calm")

    answers = [strict.next(hasty, "") for _ in range(20)]
    refused = [answer for answer in answers if answer.status == 429]

    assert {answer.status for answer in answers} == {200, 429}
    assert {answer.headers["retry-after"] for answer in refused} == {"1"}
    assert strict.next(calm, "").status == 200
    until(lambda: strict.next(hasty, "").status == 200)


def test_a_body_that_says_it_is_too_large_is_refused_unread(
    server: RunningServer, ann: str
) -> None:
    connection = http.client.HTTPConnection(server.address, timeout=60)
    connection.putrequest("POST", "/v1/next")
    connection.putheader("Authorization", f"Bearer {ann}")
    connection.putheader("Content-Length", str(1 << 40))
    connection.endheaders()

    response = connection.getresponse()

    assert response.status == 413
    assert b"at most 1048576 bytes" in response.read()
    connection.close()


def test_a_body_that_grows_too_large_is_refused(server: RunningServer, ann: str) -> None:
    chunks = [b'{"text": "', *[b"a" * 65_536] * 16, b'"}']

    found = server.ask("POST", "/v1/next", iter(chunks), token=ann)

    assert found.status == 413
    assert server.metric("sotto_waiting_bytes") == 0


@pytest.mark.parametrize("path", ["/v1/next", "/v2/models/keyboard/infer", "/v1/audio/speech"])
@pytest.mark.parametrize("given", [None, "Bearer sotto_nobodys", "Basic YW5uOmFubg=="])
def test_without_a_clients_token_no_body_is_waited_for(
    server: RunningServer, path: str, given: str | None
) -> None:
    connection = http.client.HTTPConnection(server.address, timeout=60)
    connection.putrequest("POST", path)
    if given:
        connection.putheader("Authorization", given)
    connection.putheader("Content-Length", "1048576")
    connection.endheaders()

    response = connection.getresponse()

    assert response.status == 401
    assert response.headers["Connection"] == "close"
    assert server.metric("sotto_waiting_bytes") == 0
    connection.close()


def test_a_body_takes_room_as_it_comes(server: RunningServer, ann: str) -> None:
    connection = http.client.HTTPConnection(server.address, timeout=60)
    connection.putrequest("POST", "/v1/next")
    connection.putheader("Authorization", f"Bearer {ann}")
    connection.putheader("Content-Length", "1048576")
    connection.endheaders()
    connection.send(b"{")

    until(lambda: server.metric("sotto_waiting_bytes") == 1)
    connection.close()
    until(lambda: server.metric("sotto_waiting_bytes") == 0)


@pytest.mark.slow
def test_a_body_that_does_not_come_is_not_waited_for(impatient: tuple[RunningServer, str]) -> None:
    server, slow = impatient
    connection = http.client.HTTPConnection(server.address, timeout=60)
    connection.putrequest("POST", "/v1/next")
    connection.putheader("Authorization", f"Bearer {slow}")
    connection.putheader("Content-Length", "100")
    connection.endheaders()
    connection.send(b"{")

    response = connection.getresponse()

    assert response.status == 408
    assert b"within 1.5 s" in response.read()
    connection.close()


@pytest.mark.parametrize("sent", [b"X-Long: " + b"a" * 200_000, b"X: y\r\n" * 50_000])
def test_endless_headers_end_the_connection(server: RunningServer, sent: bytes) -> None:
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        try:
            connection.sendall(b"GET /v2/health/live HTTP/1.1\r\n" + sent)
            answer = connection.recv(1 << 16)
        except ConnectionError:
            answer = b""

    assert not answer or answer.startswith(b"HTTP/1.1 431 ")
    assert server.get("/v2/health/live").status == 200


@pytest.mark.slow
def test_headers_that_do_not_come_are_not_waited_for(impatient: tuple[RunningServer, str]) -> None:
    host, _, port = impatient[0].address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nX: ")

        assert connection.recv(1 << 16) == b""


def test_a_client_that_hangs_up_disturbs_nobody(server: RunningServer, ann: str) -> None:
    host, _, port = server.address.rpartition(":")
    for _ in range(20):
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            head = f"POST /v1/next HTTP/1.1\r\nAuthorization: Bearer {ann}\r\nContent-Length: 100"
            connection.sendall(f"{head}\r\n\r\n{{".encode())

    until(lambda: server.next(ann, "").status == 200)
    until(lambda: server.metric("sotto_requests_under_way") == 0)
    assert server.metric("sotto_waiting_bytes") == 0


@pytest.mark.slow
def test_requests_under_way_are_answered_before_the_server_ends(
    tmp_path: Path, bundles: dict[int, Path]
) -> None:
    changes = {"body_s = 10.0": "body_s = 60.0"}
    folder = serving_folder(tmp_path / "folder", bundles[3], changes=changes)
    server = RunningServer(folder, tmp_path / "log")
    token = new_client(server, "ann")
    connection = http.client.HTTPConnection(server.address, timeout=30)
    connection.putrequest("POST", "/v1/next")
    connection.putheader("Authorization", f"Bearer {token}")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", "12")
    connection.endheaders()
    connection.send(b'{"text":')
    until(lambda: server.metric("sotto_waiting_bytes") == 8)

    codes: list[int] = []
    stopping = threading.Thread(target=lambda: codes.append(server.stop()))
    stopping.start()
    time.sleep(0.5)
    connection.send(b' ""}')
    response = connection.getresponse()

    assert response.status == 200
    response.read()
    connection.close()
    stopping.join(60)
    assert codes == [0]
