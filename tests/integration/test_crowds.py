"""A crowd of uploads: bounded memory for those that are slow, and no acknowledgement too many."""

import select
import socket
import sqlite3
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

import grpc
import pytest

from benchmarks.parts import strangers_on_the_wire
from benchmarks.parts.strangers_on_the_wire import Line
from protos import federation_pb2 as pb
from protos.data_chunks import PIECE_BYTES
from server.devices.transfer_line import TransferLine
from tests.integration import serving_process
from tests.integration.device import Device, next_lease
from tests.integration.federation import Federation, settings
from tests.integration.real_device import LIMIT_S

# Two pieces at a time.
PLACES = 2
SLOW_DEVICES, STREAMS = 6, 8
_SETTINGS, _PING, _WINDOW_UPDATE, _INITIAL_WINDOW = 4, 6, 8, 4


def serve_few(
    root: Path,
    log: Path,
    failpoint: str | None,
    ready: "Connection[None, None]",
    machine: serving_process.Machine | None,
) -> None:
    """Serve with places for two uploads, which nobody loses for standing still."""
    from server.uplink import acceptance

    line = TransferLine(PLACES * PIECE_BYTES, still_s=LIMIT_S)
    setattr(acceptance, "TransferLine", lambda _: line)  # noqa: B010  # mypy lets no class be one
    _serve(root, log, failpoint, ready, machine)


_serve = serving_process._serve


class SlowSender(Line):
    """Uploads that never end on one connection, which sends as much as it is allowed to."""

    def __init__(self, port: int, certificate: str) -> None:
        super().__init__(port, certificate)
        self.sent_bytes = 0
        self._window, self._initial = 65_535, 65_535
        self._streams: dict[int, int] = {}
        self._left: dict[int, int] = {}
        self._unread = b""

    def begin(self) -> None:
        """Begin an upload of a message that is one byte longer than what is sent of it."""
        stream = self.call("Federation/Upload")
        self._streams[stream], self._left[stream] = self._initial, PIECE_BYTES
        self.frame(stream, b"\0" + struct.pack(">I", PIECE_BYTES + 1))

    def frame(self, stream: int, data: bytes) -> None:
        head = struct.pack(">I", len(data))[1:] + bytes([0, 0]) + struct.pack(">I", stream)
        self.socket.sendall(head + data)
        self._window -= len(data)
        self._streams[stream] -= len(data)

    def pump(self) -> bool:
        """Read what the other end allows and send that much; return whether anything went."""
        while self.socket.pending() or select.select([self.socket], [], [], 0.002)[0]:
            self._unread += self.socket.recv(1 << 16)
        for kind, stream, payload in self._frames():
            self._obey(kind, stream, payload)
        before = self.sent_bytes
        for stream in self._left:
            while size := self._may_send(stream):
                self.frame(stream, bytes(size))
                self.sent_bytes += size
                self._left[stream] -= size
        return self.sent_bytes > before

    def _may_send(self, stream: int) -> int:
        return max(0, min(self._left[stream], self._window, self._streams[stream], 16_384))

    def _frames(self) -> Iterator[tuple[int, int, bytes]]:
        while len(self._unread) >= 9:
            size = struct.unpack(">I", b"\0" + self._unread[:3])[0]
            if len(self._unread) < 9 + size:
                return
            kind, flags = self._unread[3:5]
            stream = struct.unpack(">I", self._unread[5:9])[0]
            payload, self._unread = self._unread[9 : 9 + size], self._unread[9 + size :]
            if not flags or kind == _WINDOW_UPDATE:
                yield kind, stream, payload

    def _obey(self, kind: int, stream: int, payload: bytes) -> None:
        if kind == _WINDOW_UPDATE:
            (more,) = struct.unpack(">I", payload)
            if stream:
                self._streams[stream] += more
            else:
                self._window += more
        elif kind == _SETTINGS:
            for start in range(0, len(payload), 6):
                name, value = struct.unpack(">HI", payload[start : start + 6])
                if name == _INITIAL_WINDOW:
                    for each in self._streams:
                        self._streams[each] += value - self._initial
                    self._initial = value
        elif kind == _PING:
            self.socket.sendall(b"\0\0\x08\x06\x01" + bytes(4) + payload)


@pytest.mark.slow
def test_fifty_slow_uploads_bring_no_more_bytes_into_memory_than_there_are_places_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_process, "_serve", serve_few)
    monkeypatch.setattr(strangers_on_the_wire, "_CONNECT_S", 60.0)
    first_come = 'selection = "first-come"'
    text = settings(cohort=1, quorum=1, more_rounds=first_come)
    federation = Federation(tmp_path / "f", text)
    federation.start()
    try:
        honest, *slow = federation.enrol(SLOW_DEVICES + 1)
        senders = [_sender(device, tmp_path) for device in slow]
        for _ in range(STREAMS):
            for sender in senders:
                sender.begin()
        began, sent = time.monotonic(), 0
        quiet_at = began + 1.0
        while sent < PLACES * (PIECE_BYTES - 1024) or time.monotonic() < quiet_at:
            assert time.monotonic() < began + 60, sent
            if sum(sender.pump() for sender in senders):
                quiet_at = time.monotonic() + 1.0
            sent = sum(sender.sent_bytes for sender in senders)
        # Beside the places, each stream may have sent ahead what it may without asking.
        assert sent <= PLACES * PIECE_BYTES + len(senders) * STREAMS * 65_535

        # They are gone, and so are their places: nobody else was refused for them.
        orders = honest.check_in()
        lease = next_lease(orders)
        with ThreadPoolExecutor(1) as pool:
            taking_part = pool.submit(_take_part, honest, lease)
            time.sleep(0.2)
            assert not taking_part.done()
            for sender in senders:
                sender.socket.shutdown(socket.SHUT_RDWR)
            assert taking_part.result(LIMIT_S) == 1
    finally:
        federation.stop()


def _sender(device: Device, folder: Path) -> SlowSender:
    pem = folder / f"{device.name}.pem"
    pem.write_bytes(device.identity.tls_key_pem + device.identity.tls_certificate_pem)
    return SlowSender(int(device.invite.device_address.rpartition(":")[2]), str(pem))


def _take_part(device: Device, lease: pb.Lease) -> int:
    device.receive(lease)
    sealed, message_id = device.seal_update(lease)
    device.open_upload(lease, message_id, len(sealed))
    device.upload(lease, sealed)
    return device.commit(lease, message_id)


@pytest.mark.slow
@pytest.mark.parametrize("failpoint", ["blob_renamed:3", "committed:1", "committed:4"])
def test_of_a_crowd_that_commits_at_once_only_what_is_durable_was_acknowledged(
    tmp_path: Path, failpoint: str
) -> None:
    count = 6
    federation = Federation(tmp_path / "f", settings(cohort=count, quorum=count))
    federation.start(failpoint)
    try:
        devices = federation.enrol(count)
        streams = [device.check_in() for device in devices]
        leases = [next_lease(orders) for orders in streams]

        def acknowledged(number: int) -> bool:
            try:
                return _take_part(devices[number], leases[number]) == 1
            except grpc.RpcError:
                return False

        with ThreadPoolExecutor(count) as pool:
            told = list(pool.map(acknowledged, range(count)))
        federation.wait_killed()
    finally:
        federation.stop()

    with closing(sqlite3.connect(federation.root / "store.sqlite")) as store:
        kept = dict(store.execute("SELECT client, blob FROM contributions").fetchall())
    assert {device.name for device, was in zip(devices, told, strict=True) if was} <= kept.keys()
    assert all((federation.folder.updates / blob).exists() for blob in kept.values())
    if failpoint.startswith("committed"):
        assert len(kept) >= int(failpoint[-1])
