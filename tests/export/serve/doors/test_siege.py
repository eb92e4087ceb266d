"""Strangers and one hostile client cost a server little, and the others are answered meanwhile."""

import contextlib
import resource
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import psutil
import pytest

from export.making.keyboard import KeyboardKind
from export.making.released_model import export_bundle
from export.releases.release import read_release
from export.serve.folder.tokens import make_tokens
from models.settings.model import GruLmSettings
from models.text.vocabulary import Vocabulary
from protos import keyboard_pb2 as pb
from tests.export.conftest import WORDS, plan_of, random_parameters, write_release
from tests.export.serve.running_server import RunningServer, serving_folder
from tests.waiting import until

LARGE = GruLmSettings(vocabulary_size=len(WORDS), hidden_size=400)
BODY_S = 4.0
# 256 bodies fill the room. One client may have a sixteenth: 16 calls, 1 MiB.
CHANGES = {
    '# grpc_address = "127.0.0.1:8081"': 'grpc_address = "127.0.0.1:0"',
    "body_bytes = 1_048_576": "body_bytes = 65_536",
    "waiting_bytes = 268_435_456": "waiting_bytes = 16_777_216",
    "body_s = 10.0": f"body_s = {BODY_S}",
    "burst = 60": "burst = 1000",
}
CALLS_OF_ONE = 16
CLIENTS = ["mallory", "bob", *(f"reader-{number}" for number in range(5))]


@pytest.fixture(scope="module")
def tokens() -> dict[str, str]:
    return {}


@pytest.fixture(scope="module")
def besieged(
    tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary, tokens: dict[str, str]
) -> Iterator[RunningServer]:
    """A server whose graph has 4 MB."""
    root = tmp_path_factory.mktemp("besieged")
    plan = plan_of(LARGE, vocabulary)
    parameters = random_parameters(LARGE) / np.float32(20)
    write_release(root / "release", vocabulary, parameters, plan=plan)
    export_bundle(KeyboardKind(), read_release(root / "release"), root / "large.zip")
    more = ["--metric", "perplexity"]
    folder = serving_folder(root / "folder", root / "large.zip", more=more, changes=CHANGES)
    tokens |= make_tokens(folder, CLIENTS)
    server = RunningServer(folder, root / "log", is_forked=False)
    yield server
    assert server.stop() == 0


def _connected(
    server: RunningServer, sent: bytes, *, room_bytes: int | None = None
) -> socket.socket:
    host, _, port = server.address.rpartition(":")
    connection = socket.socket()
    if room_bytes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room_bytes)
    connection.settimeout(60)
    connection.connect((host, int(port)))
    connection.sendall(sent)
    return connection


def _head(method: str, path: str, token: str, *fields: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Authorization: Bearer {token}", *fields]
    return "".join(line + "\r\n" for line in [*lines, ""]).encode()


@pytest.mark.slow
def test_a_file_that_nobody_reads_takes_a_piece_of_memory_for_each_connection(
    besieged: RunningServer, tokens: dict[str, str]
) -> None:
    version = besieged.next(tokens["bob"], "").json["version"]
    path = f"/v1/keyboard/{version}/model.onnx"
    size = len(besieged.get(path, tokens["bob"]).body)
    process = psutil.Process(besieged.process.pid)
    before = process.memory_info().rss

    with contextlib.ExitStack() as held:
        for number in range(50):
            token = tokens[f"reader-{number % 5}"]
            asked = _connected(besieged, _head("GET", path, token), room_bytes=4096)
            assert held.enter_context(asked).recv(12) == b"HTTP/1.1 200"
        time.sleep(0.5)
        grown = process.memory_info().rss - before
        assert besieged.next(tokens["bob"], "we ").status == 200

    # A piece of 64 KiB each are 3.3 MB, and the tasks behind them as much; whole files are 190 MB.
    assert size > 3_500_000
    assert grown < 15_000_000


@pytest.mark.slow
def test_one_client_s_bodies_leave_room_for_the_others(
    besieged: RunningServer, tokens: dict[str, str]
) -> None:
    head = _head("POST", "/v1/next", tokens["mallory"], "Content-Length: 65536")
    most = CALLS_OF_ONE * 65_535
    waiting = []

    def is_full_or_late() -> bool:
        # Where the machine is slow, the first calls end before their bodies are sent.
        waiting.append(besieged.metric("sotto_waiting_bytes"))
        return waiting[-1] == most or time.monotonic() - began > BODY_S

    with contextlib.ExitStack() as held:
        began = time.monotonic()
        sent = [held.enter_context(_connected(besieged, head)) for _ in range(256)]
        answers = []
        for connection in sent:
            # Those that are refused are closed meanwhile.
            with contextlib.suppress(ConnectionError):
                connection.sendall(b" " * 65_535)
        until(is_full_or_late)
        assert max(waiting) <= most
        assert besieged.next(tokens["bob"], "we ").status == 200
        for connection in sent:
            with contextlib.suppress(ConnectionError):
                answers.append(connection.recv(12))
        fillings = 1 + int((time.monotonic() - began) / BODY_S)

    assert CALLS_OF_ONE <= answers.count(b"HTTP/1.1 408") <= CALLS_OF_ONE * fillings
    assert set(answers) <= {b"HTTP/1.1 408", b"HTTP/1.1 429", b""}
    until(lambda: besieged.metric("sotto_waiting_bytes") == 0)


@pytest.mark.slow
def test_a_client_that_asks_too_often_is_told_so_before_its_body(
    tmp_path: Path, bundles: dict[int, Path]
) -> None:
    often = {"requests_per_second = 30.0": "requests_per_second = 0.01", "burst = 60": "burst = 1"}
    folder = serving_folder(tmp_path / "folder", bundles[3], changes=often)
    token = make_tokens(folder, ["mallory"])["mallory"]
    server = RunningServer(folder, tmp_path / "log")
    assert server.next(token, "").status == 200

    with _connected(server, _head("POST", "/v1/next", token, "Content-Length: 100")) as connection:
        answer = connection.recv(4096)

    assert answer.startswith(b"HTTP/1.1 429 ")
    assert b"connection: close" in answer.lower()
    assert server.stop() == 0


@pytest.mark.slow
def test_one_client_s_calls_without_a_message_end_and_leave_the_others_theirs(
    besieged: RunningServer, tokens: dict[str, str]
) -> None:
    assert besieged.grpc_address is not None
    over = threading.Event()

    def nothing() -> Iterator[pb.NextRequest]:
        over.wait()
        yield from ()

    def metadata(client: str) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {tokens[client]}"),)

    with (
        grpc.insecure_channel(besieged.grpc_address) as channel,
        grpc.insecure_channel(
            besieged.grpc_address, options=[("grpc.use_local_subchannel_pool", 1)]
        ) as bobs,
    ):
        stream = channel.stream_unary(
            "/sotto.v1.Keyboard/Next",
            request_serializer=pb.NextRequest.SerializeToString,
            response_deserializer=pb.NextAnswer.FromString,
        )
        began = time.monotonic()
        held = [stream.future(nothing(), metadata=metadata("mallory")) for _ in range(300)]
        time.sleep(0.3)
        ask = bobs.unary_unary(
            "/sotto.v1.Keyboard/Next",
            request_serializer=pb.NextRequest.SerializeToString,
            response_deserializer=pb.NextAnswer.FromString,
        )
        answer = ask(pb.NextRequest(text="we "), metadata=metadata("bob"), timeout=60)
        codes = Counter(call.code().name for call in held)
        fillings = 1 + int((time.monotonic() - began) / BODY_S)
        over.set()

    assert answer.suggestions
    # One connection brings no more than 100 at all.
    assert set(codes) <= {"DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "UNAVAILABLE"}
    # Each is ended by the server, since its message was not here in time; the rest of a slow crowd
    # may then take their places.
    assert CALLS_OF_ONE <= codes["DEADLINE_EXCEEDED"] <= CALLS_OF_ONE * fillings


def test_figures_are_not_where_everybody_may_ask(besieged: RunningServer) -> None:
    assert besieged.get("/metrics").status == 404
    assert "/metrics" not in besieged.get("/openapi.json").body.decode()
    assert besieged.metrics_address != besieged.address
    assert besieged.metrics_address.startswith("127.0.0.1:")
    assert "sotto_requests_total" in besieged.metrics()


def _answered_again(server: RunningServer, token: str) -> int:
    """Return the first status; who comes while the server still turns others away is turned away.

    It has to see first that they left and that it may open files again.
    """
    until = time.monotonic() + 60
    while True:
        try:
            return server.next(token, "we ").status
        except ConnectionError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


@pytest.mark.slow
def test_a_server_without_descriptors_goes_on(
    besieged: RunningServer, tokens: dict[str, str]
) -> None:
    process = psutil.Process(besieged.process.pid)
    soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (process.num_fds() + 5, hard))
    with contextlib.ExitStack() as held:
        held.callback(resource.prlimit, process.pid, resource.RLIMIT_NOFILE, (soft, hard))
        began = time.monotonic()
        for _ in range(20):
            held.enter_context(_connected(besieged, b""))
        # Refused at once, and not left to wait for what may never come.
        with (
            _connected(besieged, b"GET / HTTP/1.1\r\n\r\n") as late,
            contextlib.suppress(ConnectionError),
        ):
            # Those that send nothing are given up after a time, and leave their places.
            assert late.recv(12) == b"" or time.monotonic() - began > BODY_S

    assert _answered_again(besieged, tokens["bob"]) == 200
    assert besieged.process.poll() is None
    assert besieged.log.read_text().count("no descriptor left") == 1
    assert "Traceback" not in besieged.log.read_text()
