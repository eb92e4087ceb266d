"""Limits on what one device, or a stranger, can hold of a running coordinator."""

import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from benchmarks.parts import strangers_on_the_wire
from benchmarks.parts.strangers_on_the_wire import Line
from privacy.identities.certificates import certificate_pem
from privacy.identities.party import Identity
from protos import federation_pb2 as pb
from protos import federation_pb2_grpc as pb_grpc
from protos.version import PROTOCOL_VERSION
from tests.integration.device import Device, Orders, call_of, next_lease
from tests.integration.federation import Federation, settings
from tests.integration.test_refusals import refusal
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("doors")


class Door:
    """Hold a running coordinator with one device in a round."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.device: Device = federation.enrol(1)[0]
        self.orders: Orders = self.device.check_in()
        self.lease = next_lease(self.orders)

    @property
    def pid(self) -> int:
        assert self.federation.process is not None
        assert self.federation.process.pid is not None
        return self.federation.process.pid

    def descriptors(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())

    def uploads_held(self) -> tuple[int, int]:
        """Return descriptors of uploads, and the blocks of those whose file was deleted."""
        opened, blocks = 0, 0
        for descriptor in Path(f"/proc/{self.pid}/fd").iterdir():
            try:
                target, state = str(descriptor.readlink()), descriptor.stat()
            except OSError:
                continue
            if ".part" in target:
                opened += 1
                blocks += state.st_blocks if target.endswith(" (deleted)") else 0
        return opened, blocks

    def certificate(self, folder: Path) -> str:
        pem = folder / "device.pem"
        pem.write_bytes(self.device.identity.tls_key_pem + self.device.identity.tls_certificate_pem)
        return str(pem)


@pytest.fixture(autouse=True)
def patient_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers_on_the_wire, "_CONNECT_S", 60.0)


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    text = settings(cohort=1, quorum=1)
    federation = Federation(tmp_path_factory.mktemp("doors") / "f", text)
    federation.start()
    try:
        yield Door(federation)
    finally:
        federation.stop()


def test_twenty_superseded_uploads_hold_one_descriptor_and_no_deleted_block(
    door: Door, tmp_path: Path
) -> None:
    lines: list[Line] = []
    for number in range(20):
        door.device.open_upload(door.lease, number.to_bytes(16, "big"), door.lease.upload_bytes)
        line = Line(port_of(door.device.invite.device_address), door.certificate(tmp_path))
        piece = pb.UploadChunk(lease_nonce=door.lease.nonce, data=bytes(1000))
        line.send(line.call("Federation/Upload"), piece.SerializeToString())
        deadline = time.monotonic() + 60
        while door.uploads_held()[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.005)
        lines.append(line)

    time.sleep(0.2)
    until(lambda: door.uploads_held() == (1, 0))
    # The lease ends, and the client has not hung up.
    door.device.stub.RefusePlan(
        pb.RefusePlanRequest(lease_nonce=door.lease.nonce, code="plan_refused"), timeout=60
    )
    until(lambda: door.uploads_held() == (0, 0))
    assert len(lines) == 20


def test_a_device_has_eight_calls_at_a_time(door: Door, tmp_path: Path) -> None:
    certificate = door.certificate(tmp_path)
    port = port_of(door.device.invite.device_address)
    code = ""

    def refused() -> str:
        return refusal(lambda: door.device.commit(door.lease, bytes(16)))

    # A commit that comes before one of the lines takes its place, and that line is refused.
    for pause_s in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0):
        # Its check-in is one; these begin an upload and never send its first piece.
        lines = [Line(port, certificate) for _ in range(7)]
        for line in lines:
            line.call("Federation/Upload")
        time.sleep(pause_s)
        code = refused()
        for line in lines:
            line.socket.close()
        if code == "rate_limited":
            break

    assert code == "rate_limited"
    until(lambda: refused() != "rate_limited")


def test_a_token_is_looked_at_before_what_came_with_it(door: Door) -> None:
    invite = door.device.invite
    credentials = grpc.ssl_channel_credentials(certificate_pem(invite.ca_certificate))
    garbage = pb.SigningRequests(tls=b"no", wrapping=b"request", signing=b"at all")
    request = pb.EnrolRequest(
        protocol_version=PROTOCOL_VERSION, token=bytes(16), signing_requests=garbage
    )

    with grpc.secure_channel(invite.enrolment_address, credentials) as channel:
        stub = pb_grpc.EnrolmentStub(channel)
        assert refusal(lambda: stub.Enrol(request, timeout=60)) == "token_invalid"


def test_an_enrolment_has_at_most_64_kib(door: Door) -> None:
    invite = door.device.invite
    credentials = grpc.ssl_channel_credentials(certificate_pem(invite.ca_certificate))
    request = pb.EnrolRequest(token=bytes(65 << 10))

    with (
        grpc.secure_channel(invite.enrolment_address, credentials) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        pb_grpc.EnrolmentStub(channel).Enrol(request, timeout=60)
    assert call_of(caught.value).code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_device_renews_its_certificates_so_often_and_no_more(door: Door, tmp_path: Path) -> None:
    asked = Identity.create_requests(tmp_path / "renewing", "device")
    request = pb.RenewCertificatesRequest(
        signing_requests=pb.SigningRequests(
            tls=asked.tls, wrapping=asked.wrapping, signing=asked.signing
        )
    )

    for _ in range(8):
        door.device.stub.RenewCertificates(request, timeout=60)

    renew = door.device.stub.RenewCertificates
    assert refusal(lambda: renew(request, timeout=60)) == "rate_limited"


def test_more_strangers_than_the_enrolment_has_room_for_are_let_go_at_once(door: Door) -> None:
    before = door.descriptors()
    port = port_of(door.device.invite.enrolment_address)

    strangers = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(300)]
    time.sleep(0.5)

    assert door.descriptors() <= before + 128
    for stranger in strangers:
        stranger.close()


def admitted(port: int) -> list[Line]:
    try:
        return [Line(port, None)]
    except (ssl.SSLError, ConnectionError):
        return []


def test_a_half_sent_enrolment_is_ended_by_the_coordinator(door: Door) -> None:
    port = port_of(door.device.invite.enrolment_address)
    # The strangers of the test before have room until the coordinator hears that they went.
    (line,) = until(lambda: admitted(port))
    began, heard = time.monotonic(), b""
    line.send(line.call("Enrolment/Enrol"), bytes(1000), of_bytes=60_000)
    line.socket.settimeout(60)
    while b"too_slow" not in heard:
        piece = line.socket.recv(4096)
        assert piece
        heard += piece

    # And no later than a silence of the line would have ended it.
    assert time.monotonic() - began > 9
