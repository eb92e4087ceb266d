"""Besiege a coordinator's two doors from a process of its own, and never hang up.

``python -m benchmarks.parts.strangers_on_the_wire SIEGE.json``. Strangers speak HTTP/2 by hand, as
gRPC's own client is too polite: it sends whole messages and reads what comes. It prints a line when
each wave stands, and waits until its standard input is closed.
"""

import argparse
import contextlib
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from privacy.foundation.shortages import raise_descriptor_limit
from protos import federation_pb2 as pb
from protos.version import PROTOCOL_VERSION

IDLE, HALF_SENT, SLOW_READERS, UPLOADS = 1_000, 200, 100, 60
_CONNECT_S = 2.0
_FRAME_BYTES = 16_384
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _WINDOW_UPDATE = 0, 1, 4, 8
_END_STREAM, _END_HEADERS = 1, 4
_WHOLE_MESSAGE_BYTES, _SENT_BYTES = 60_000, 40_000
_PIECE_BYTES = 1_000
_SMALL_BUFFER = 4_096
_STREAMS = 8


class Siege(msgspec.Struct, frozen=True):
    """The facts that a siege needs: addresses, and the files of one enrolled device.

    ``lease_nonce`` is of the lease that the device holds, under which it uploads and fetches.
    """

    enrolment_port: int
    devices_port: int
    certificate: str
    lease_nonce: bytes
    upload_bytes: int


class Line:
    """One TLS connection that speaks HTTP/2."""

    def __init__(self, port: int, certificate: str | None) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        if certificate is not None:
            context.load_cert_chain(certificate)
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_BUFFER)
        plain.settimeout(_CONNECT_S)
        plain.connect(("127.0.0.1", port))
        self.socket = context.wrap_socket(plain)
        self.socket.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, b""))
        self._next_stream = 1

    def call(self, method: str) -> int:
        """Send the headers of a call and return its stream."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        fields = {
            ":method": "POST",
            ":scheme": "https",
            ":path": f"/sotto.v1.{method}",
            ":authority": "localhost",
            "content-type": "application/grpc",
            "te": "trailers",
        }
        block = b"".join(_literal(name, value) for name, value in fields.items())
        self.socket.sendall(_frame(_HEADERS, _END_HEADERS, stream, block))
        return stream

    def send(self, stream: int, message: bytes, *, of_bytes: int | None = None) -> None:
        """Send a message; of one of ``of_bytes``, only its beginning."""
        whole = len(message) if of_bytes is None else of_bytes
        data = b"\0" + struct.pack(">I", whole) + message
        for start in range(0, len(data), _FRAME_BYTES):
            self.socket.sendall(_frame(_DATA, 0, stream, data[start : start + _FRAME_BYTES]))

    def end(self, stream: int) -> None:
        """Say that nothing more comes on a stream."""
        self.socket.sendall(_frame(_DATA, _END_STREAM, stream, b""))

    def open_window(self, stream: int) -> None:
        """Promise to read a gigabyte, which is then not read."""
        for each in (0, stream):
            self.socket.sendall(_frame(_WINDOW_UPDATE, 0, each, struct.pack(">I", 1 << 30)))


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = struct.pack(">I", len(payload))[1:] + bytes([kind, flags])
    return head + struct.pack(">I", stream) + payload


def _literal(name: str, value: str) -> bytes:
    """Return a header field without compression (RFC 7541, 6.2.2)."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def half_sent(siege: Siege) -> Iterator[Callable[[], object]]:
    """Yield what stops in the middle of a message, or of a handshake that needs a certificate."""

    def enrolling() -> Line:
        line = Line(siege.enrolment_port, None)
        line.send(line.call("Enrolment/Enrol"), bytes(_SENT_BYTES), of_bytes=_WHOLE_MESSAGE_BYTES)
        return line

    def half_shaken() -> socket.socket:
        line = _idle(siege.devices_port)
        line.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
        return line

    def enrolled() -> Line:
        line = Line(siege.devices_port, siege.certificate)
        for _ in range(_STREAMS):
            stream = line.call("Federation/SendEmbedding")
            line.send(stream, bytes(4_000), of_bytes=3 << 20)
        return line

    for number in range(HALF_SENT):
        yield enrolling
        yield enrolled if number % _STREAMS == 0 else half_shaken


def slow_readers(siege: Siege) -> Iterator[Callable[[], object]]:
    """Yield calls whose answers nobody reads."""
    request = pb.EnrolRequest(protocol_version=PROTOCOL_VERSION, token=bytes(16))
    fetch = pb.FetchModelRequest(lease_nonce=siege.lease_nonce)

    def asking(port: int, certificate: str | None, method: str, message: bytes) -> Line:
        line = Line(port, certificate)
        stream = line.call(method)
        line.open_window(stream)
        line.send(stream, message)
        line.end(stream)
        return line

    for _ in range(SLOW_READERS):
        yield lambda: asking(
            siege.enrolment_port, None, "Enrolment/Enrol", request.SerializeToString()
        )
        yield lambda: asking(
            siege.devices_port,
            siege.certificate,
            "Federation/FetchModel",
            fetch.SerializeToString(),
        )


def superseded_uploads(siege: Siege) -> Iterator[Callable[[], object]]:
    """Yield the connections on which one lease's upload is replaced again and again."""

    def replacing(first: int) -> Line:
        line = Line(siege.devices_port, siege.certificate)
        for number in range(first, first + _STREAMS // 2):
            opening = pb.OpenUploadRequest(
                lease_nonce=siege.lease_nonce,
                message_id=number.to_bytes(16, "big"),
                total_bytes=siege.upload_bytes,
            )
            stream = line.call("Federation/OpenUpload")
            line.send(stream, opening.SerializeToString())
            line.end(stream)
            # Long enough for the answer, which nobody reads.
            time.sleep(0.05)
            piece = pb.UploadChunk(lease_nonce=siege.lease_nonce, data=bytes(_PIECE_BYTES))
            line.send(line.call("Federation/Upload"), piece.SerializeToString())
            time.sleep(0.02)
        return line

    for first in range(0, UPLOADS, _STREAMS // 2):
        yield partial(replacing, first)


def idle(siege: Siege) -> Iterator[Callable[[], object]]:
    """Yield connections that say nothing."""
    for _ in range(IDLE):
        yield lambda: _idle(siege.enrolment_port)
        yield lambda: _idle(siege.devices_port)


def _idle(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=_CONNECT_S)


WAVES = {
    "half_sent": half_sent,
    "slow_readers": slow_readers,
    "superseded_uploads": superseded_uploads,
    "idle": idle,
}


def main() -> None:
    """Send each wave when a line on standard input names it, until that is closed."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("siege", type=Path)
    path = parser.parse_args().siege
    raise_descriptor_limit()
    held: list[object] = []
    for line in sys.stdin:
        # Read anew for each wave: the lease is another one in each round.
        siege = msgspec.json.decode(path.read_bytes(), type=Siege)
        turned_away = 0
        for arrive in WAVES[line.strip()](siege):
            try:
                held.append(arrive())
            except OSError:
                turned_away += 1
        print(turned_away, flush=True)
    for each in held:
        with contextlib.suppress(OSError):
            (each.socket if isinstance(each, Line) else each).close()  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
