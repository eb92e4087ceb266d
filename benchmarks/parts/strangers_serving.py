"""Besiege a real `sotto-serve` with strangers and slow people, and see what it costs the others.

All of it comes over loopback to the default limits: 500 idle connections at each of HTTP and gRPC,
200 messages that stop half-way (headers, bodies of 256 KiB without a token, bodies and gRPC
messages with one client's), and 100 readers of the largest file who take 64 bytes every half
second. Nobody hangs up before the server does. With bodies of the largest size one client may take
16 MiB more, its share of the room.
"""

import contextlib
import http.client
import json
import os
import selectors
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from benchmarks.serving_http import SHARED, make_release, put
from export.making.keyboard import KeyboardKind
from export.making.released_model import export_bundle
from export.page.onnxruntime_web import VERSION, runtime_files
from export.serve.commands import init
from export.serve.folder.folder import ServingFolder
from export.serve.folder.tokens import make_tokens
from models.settings.personalisation import GlobalSettings

_MB = 1e6
_IDLE_AT_EACH = 500
_HALVES_OF_EACH = 50
_READERS = 100
_SMALL_WINDOW = 4096
_CLOSED_WITHIN_S = 60.0
_KEYS_A_SECOND = 20
_SETTINGS = {
    "8080": "0",
    "8082": "0",
    '# grpc_address = "127.0.0.1:8081"': 'grpc_address = "127.0.0.1:0"',
}
_CHECKOUT = Path(__file__).resolve().parents[2]
_COMMAND = "import sys; from export.serve.cli import main; sys.exit(main())"
_TEXT = "The value of the expression is computed before the function is called with it. "
_BODY_BYTES = 1 << 18
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

Address = tuple[str, int]


def measure_serving(*, quick: bool) -> dict[str, float]:
    """Return what strangers cost a model server.

    Args:
        quick: Time an honest person for 5 s each, not 20.

    Returns:
        ``serve_rss_growth_mb``: most resident memory above that before the siege, in 10^6 bytes.
        ``serve_descriptors_left``: descriptors above those before, when the last has gone, or
        after 60 s. ``serve_closed_s``: when that was. ``suggestion_ms``: an honest person's median
        time from key to words without the siege. ``suggestion_ratio``: the same in the siege over
        that. ``suggestion_longest_ms``: the longest time in the siege. ``serve_errors``: answers of
        that person's that were no 200, tracebacks in the server's log, and an exit status other
        than 0.
    """
    with tempfile.TemporaryDirectory() as root, _server(Path(root)) as server:
        return _besiege(server, seconds=5.0 if quick else 20.0)


@dataclass
class _Server:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    http: Address
    grpc: Address
    log: Path
    tokens: dict[str, str]
    watched: psutil.Process = field(init=False)

    def __post_init__(self) -> None:
        self.watched = psutil.Process(self.process.pid)

    def largest_file(self) -> bytes:
        """Return the request for the largest file that is served."""
        if runtime_files():
            return _head("GET", f"/page/onnxruntime-web-{VERSION}/ort-wasm-simd-threaded.wasm")
        version = _Person(self).ask("")["version"]
        return _head(
            "GET",
            f"/v1/keyboard/{version}/model.onnx",
            f"Authorization: Bearer {self.tokens['reader']}",
        )


@contextlib.contextmanager
def _server(root: Path) -> Iterator[_Server]:
    export_bundle(KeyboardKind(), make_release(SHARED, GlobalSettings(), 1), root / "bundle.zip")
    folder = ServingFolder(root / "folder")
    init(folder, authority=None)
    text = folder.settings.read_text()
    for old, new in _SETTINGS.items():
        text = text.replace(old, new)
    folder.settings.write_text(text)
    put(folder, root / "bundle.zip")
    tokens = make_tokens(folder, ["honest", "hostile", "reader"])
    log = root / "log"
    with log.open("wb") as written:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _COMMAND, str(folder.root)],
            stdout=subprocess.PIPE,
            stderr=written,
            text=True,
            cwd=_CHECKOUT,
            env=os.environ | {"PYTHONPATH": str(_CHECKOUT)},
        )
    try:
        assert process.stdout is not None
        http_address, grpc_address = (_address(process.stdout.readline()) for _ in range(2))
        yield _Server(process, http_address, grpc_address, log, tokens)
    finally:
        process.terminate()
        process.wait(30)


def _address(line: str) -> Address:
    host, _, port = line.strip().rpartition("/")[2].rpartition(":")
    if not port:
        raise SystemExit("the server did not start")
    return host, int(port)


def _besiege(server: _Server, *, seconds: float) -> dict[str, float]:
    person = _Person(server)
    person.type_for(1.0)
    usual = person.type_for(seconds)
    descriptors, rss = server.watched.num_fds(), server.watched.memory_info().rss
    with _Siege(server) as siege:
        besieged = person.type_for(0.5)
        while not siege.is_complete.is_set():
            besieged += person.type_for(0.5)
        started = time.monotonic()
        besieged += person.type_for(seconds)
        while server.watched.num_fds() > descriptors:
            if time.monotonic() - started > _CLOSED_WITHIN_S:
                break
            person.type_for(0.5)
        closed_s = time.monotonic() - started
        left = server.watched.num_fds() - descriptors
    person.connection.close()
    server.process.terminate()
    failed = server.process.wait(30) != 0
    return {
        "serve_rss_growth_mb": (siege.largest_rss - rss) / _MB,
        "serve_descriptors_left": left,
        "serve_closed_s": closed_s,
        "suggestion_ms": float(np.median(usual) * 1e3),
        "suggestion_ratio": float(np.median(besieged) / np.median(usual)),
        "suggestion_longest_ms": max(besieged) * 1e3,
        "serve_errors": person.errors + failed + server.log.read_text().count("Traceback"),
    }


class _Person:
    """An honest person, who types over one connection.

    Attributes:
        errors: Answers that were no 200, and connections that broke.
    """

    def __init__(self, server: _Server) -> None:
        self.connection = http.client.HTTPConnection(*server.http, timeout=30)
        self.errors = 0
        self._token = server.tokens["honest"]
        self._typed = 0

    def ask(self, text: str) -> dict[str, object]:
        """Ask for words."""
        fields = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        self.connection.request("POST", "/v1/next", json.dumps({"text": text}), fields)
        answer = self.connection.getresponse()
        body: dict[str, object] = json.loads(answer.read())
        self.errors += answer.status != 200
        return body

    def type_for(self, seconds: float) -> list[float]:
        """Type evenly; return the time from each key to its words, in seconds."""
        taken = []
        for _ in range(round(seconds * _KEYS_A_SECOND)):
            started = time.perf_counter()
            self._typed = self._typed % len(_TEXT) + 1
            try:
                self.ask(_TEXT[: self._typed])
            except (OSError, http.client.HTTPException):
                self.errors += 1
                self.connection.close()
            taken.append(time.perf_counter() - started)
            time.sleep(max(0.0, 1 / _KEYS_A_SECOND - taken[-1]))
        return taken


class _Siege(threading.Thread):
    """All hostile connections, which are held until the block ends.

    Attributes:
        largest_rss: Most resident memory of the server meanwhile, in bytes.
        is_complete: Whether every connection was opened.
    """

    def __init__(self, server: _Server) -> None:
        super().__init__(daemon=True)
        self.largest_rss = 0
        self._server = server
        self._over = threading.Event()
        self.is_complete = threading.Event()
        self._held = contextlib.ExitStack()

    def __enter__(self) -> "_Siege":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
        self._held.close()

    def run(self) -> None:
        """Open everything, and read a little now and then."""
        server = self._server
        hostile = f"Authorization: Bearer {server.tokens['hostile']}"
        length = f"Content-Length: {_BODY_BYTES}"
        body = b" " * (_BODY_BYTES // 2)
        for address in (server.http, server.grpc):
            self._open(address, b"", _IDLE_AT_EACH)
        self._open(server.http, b"GET / HTTP/1.1\r\nX: ", _HALVES_OF_EACH)
        self._open(server.http, _head("POST", "/v1/next", length) + body, _HALVES_OF_EACH)
        self._open(server.http, _head("POST", "/v1/next", hostile, length) + body, _HALVES_OF_EACH)
        self._open(server.grpc, _half_a_call(server.tokens["hostile"]), _HALVES_OF_EACH)
        readers = selectors.DefaultSelector()
        for reader in self._open(server.http, server.largest_file(), _READERS):
            readers.register(reader, selectors.EVENT_READ)
        self.is_complete.set()
        while not self._over.wait(0.5):
            self.largest_rss = max(self.largest_rss, server.watched.memory_info().rss)
            for key, _ in readers.select(0):
                assert isinstance(key.fileobj, socket.socket)
                if not _took_a_little(key.fileobj):
                    readers.unregister(key.fileobj)
        readers.close()

    def _open(self, address: Address, sent: bytes, count: int) -> list[socket.socket]:
        """Open connections and send what each sends; one that is refused meanwhile is held too."""
        opened = []
        for _ in range(count):
            connection = self._held.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_WINDOW)
            connection.settimeout(2.0)
            with contextlib.suppress(OSError):
                connection.connect(address)
                connection.sendall(sent)
            opened.append(connection)
            self.largest_rss = max(self.largest_rss, self._server.watched.memory_info().rss)
        return opened


def _took_a_little(reader: socket.socket) -> bool:
    try:
        return bool(reader.recv(64))
    except OSError:
        return False


def _head(method: str, path: str, *fields: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *fields, "", ""]
    return "\r\n".join(lines).encode()


def _half_a_call(token: str) -> bytes:
    """Return the bytes of HTTP/2 with which a gRPC call begins, and 48 KiB of a message of 1 MB."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/sotto.v1.Keyboard/Next",
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
        "authorization": f"Bearer {token}",
    }
    # HPACK's literals without indexing (RFC 7541, 6.2.2); no text here has 127 bytes.
    headers = b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in fields.items()
    )
    message = struct.pack(">BI", 0, 1_000_000) + bytes(3 << 14)
    data = [message[start : start + (1 << 14)] for start in range(0, len(message), 1 << 14)]
    settings, end_of_headers = 0x4, 0x4
    return b"".join(
        (
            _HTTP2_PREFACE,
            _frame(settings, 0, 0, b""),
            _frame(0x1, end_of_headers, 1, headers),
            *(_frame(0x0, 0, 1, piece) for piece in data),
        )
    )


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    """Return one frame of HTTP/2 (RFC 9113, 4.1)."""
    return len(content).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + content
