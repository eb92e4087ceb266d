"""Devices ask over gRPC, and get what HTTP gives them."""

import datetime
import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from export.making.keyboard import KeyboardKind
from export.making.person_of_release import export_people
from export.making.released_model import export_bundle
from export.serve.folder.settings import ListenSettings
from models.text.vocabulary import Vocabulary
from protos import keyboard_pb2 as pb
from protos import keyboard_pb2_grpc as pb_grpc
from tests.export.people_scene import release_with_people
from tests.export.serve.running_server import RunningServer, serving_folder, token_of
from tests.waiting import until

TEXT = "we see the "
GRPC = {'# grpc_address = "127.0.0.1:8081"': 'grpc_address = "127.0.0.1:0"'}
TLS = {'# certificate = "tls.crt"': 'certificate = "tls.crt"', "# key = ": "key = "}
OFTEN = {"requests_per_second = 30.0": "requests_per_second = 1e-3", "burst = 60": "burst = 3"}


@dataclass(frozen=True)
class Device:
    """A device's connection to a server, and its client's token."""

    server: RunningServer
    stub: pb_grpc.KeyboardStub
    token: str

    def next(self, request: pb.NextRequest, token: str | None = None) -> pb.NextAnswer:
        bearer = f"Bearer {self.token if token is None else token}"
        return self.stub.Next(request, metadata=(("authorization", bearer),), timeout=30)

    def refused(self, request: pb.NextRequest, token: str | None = None) -> tuple[str, str]:
        with pytest.raises(grpc.RpcError) as caught:
            self.next(request, token)
        # Any: what is raised is a call too, which the stubs do not say.
        call: Any = caught.value
        return call.code().name, call.details()


def _grpc_address(server: RunningServer) -> str:
    assert server.grpc_address is not None
    return server.grpc_address


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory, bundles: dict[int, Path]) -> Iterator[Device]:
    root = tmp_path_factory.mktemp("grpc")
    folder = serving_folder(root / "folder", bundles[3], changes=GRPC)
    token = token_of(folder, "ann")
    server = RunningServer(folder, root / "log")
    with grpc.insecure_channel(_grpc_address(server)) as channel:
        yield Device(server, pb_grpc.KeyboardStub(channel), token)
    assert server.stop() == 0


@pytest.mark.slow
def test_a_device_gets_the_words_and_the_strip_that_http_gives(device: Device) -> None:
    over_http = device.server.next(device.token, TEXT + "se", count=5).json

    found = device.next(pb.NextRequest(text=TEXT + "se", count=5))

    assert found.version == over_http["version"]
    assert [
        {"word": one.word, "probability": pytest.approx(one.probability)}
        for one in found.suggestions
    ] == over_http["suggestions"]
    strip = over_http["strip"]
    assert isinstance(strip, dict)
    assert found.strip.centre.text == strip["centre"]["text"]
    assert not found.strip.centre.is_verbatim


def test_what_is_typed_is_shown_where_words_are_too_few(device: Device) -> None:
    found = device.next(pb.NextRequest(text="Zqxv", incognito=True))

    assert (found.strip.left.text, found.strip.left.is_verbatim) == ("Zqxv", True)
    assert not found.strip.HasField("centre")


def test_a_device_is_told_of_a_correction_until_the_word_is_to_be_kept(device: Device) -> None:
    mended = device.next(pb.NextRequest(text="we teh"))
    kept = device.next(pb.NextRequest(text="we teh", kept_words=["Teh"]))

    assert (mended.strip.centre.text, mended.strip.centre.is_correction) == ("the", True)
    assert (mended.strip.left.text, mended.strip.left.is_verbatim) == ("teh", True)
    assert not mended.strip.centre.is_verbatim
    assert not kept.strip.centre.is_correction
    assert device.refused(pb.NextRequest(text="a", kept_words=["a"] * 1001)) == (
        "INVALID_ARGUMENT",
        "kept_words must be at most 1000, got 1001",
    )


@pytest.mark.slow
@pytest.mark.parametrize("token", ["", "sotto_" + "x" * 43, "Bearer"])
def test_a_token_of_nobody_is_turned_away(device: Device, token: str) -> None:
    assert device.refused(pb.NextRequest(text=TEXT), token)[0] == "UNAUTHENTICATED"


def test_a_call_without_a_token_is_turned_away(device: Device) -> None:
    with pytest.raises(grpc.RpcError, match="Authorization: Bearer TOKEN"):
        device.stub.Next(pb.NextRequest(text=TEXT), timeout=30)


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        (pb.NextRequest(count=11), "INVALID_ARGUMENT", "count must be in [1, 10], got 11"),
        (pb.NextRequest(count=0), "INVALID_ARGUMENT", "got 0"),
        (pb.NextRequest(version="000009-x"), "NOT_FOUND", "version must be one of: 000003-"),
        (pb.NextRequest(text="a" * (1 << 20)), "RESOURCE_EXHAUSTED", "1048576"),
    ],
    ids=["too many", "none", "version", "too large"],
)
def test_what_cannot_be_answered_is_refused_with_the_rule(
    device: Device, request_: pb.NextRequest, code: str, message: str
) -> None:
    found = device.refused(request_)

    assert found[0] == code
    assert message in found[1]
    assert device.next(pb.NextRequest(text=TEXT)).suggestions


@pytest.mark.slow
def test_a_revoked_token_ends_for_an_open_connection_too(device: Device) -> None:
    ben = token_of(device.server.folder, "ben")
    until(lambda: device.server.next(ben, "").status == 200)
    assert device.next(pb.NextRequest(text=TEXT), ben).suggestions

    token_of(device.server.folder, "ben")  # a new one ends the old
    until(lambda: device.server.next(ben, "").status == 401)

    assert device.refused(pb.NextRequest(text=TEXT), ben)[0] == "UNAUTHENTICATED"


@pytest.mark.slow
def test_over_tls_a_client_that_asks_too_often_waits(
    tmp_path: Path, bundles: dict[int, Path]
) -> None:
    folder = serving_folder(tmp_path / "folder", bundles[3], changes=GRPC | OFTEN | TLS)
    _self_signed(folder.root / "tls.crt", folder.root / "tls.key")
    token = token_of(folder, "ann")
    server = RunningServer(folder, tmp_path / "log")
    trusted = grpc.ssl_channel_credentials((folder.root / "tls.crt").read_bytes())
    with grpc.secure_channel(_grpc_address(server), trusted) as channel:
        device = Device(server, pb_grpc.KeyboardStub(channel), token)
        for _ in range(3):
            assert device.next(pb.NextRequest(text=TEXT)).suggestions
        code, message = device.refused(pb.NextRequest(text=TEXT))
    assert code == "RESOURCE_EXHAUSTED"
    # A thousandth of a request a second, less what the three took.
    assert re.fullmatch(r"this client asks too often; ask again in (9\d\d|1000) s", message)
    assert server.stop() == 0


@pytest.mark.slow
def test_what_is_refused_is_told_in_the_words_of_http(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    release = release_with_people(tmp_path / "run", vocabulary)
    export_bundle(KeyboardKind(), release, tmp_path / "shared.zip")
    (tmp_path / "people").mkdir()
    export_people(release, [("ada", tmp_path / "people" / "ada.zip")])
    more = ["--metric", "perplexity", "--people", str(tmp_path / "people")]
    folder = serving_folder(tmp_path / "folder", tmp_path / "shared.zip", more=more, changes=GRPC)
    token = token_of(folder, "cat")
    server = RunningServer(folder, tmp_path / "log")
    with grpc.insecure_channel(_grpc_address(server)) as channel:
        device = Device(server, pb_grpc.KeyboardStub(channel), token)
        told = {
            bearer: (device.refused(pb.NextRequest(text=TEXT), bearer), server.next(bearer, TEXT))
            for bearer in (token, "nobody")
        }
    assert server.stop() == 0

    assert "`sotto-serve person`" in told[token][0][1]
    for (_, message), answer in told.values():
        error = answer.json["error"]
        assert isinstance(error, dict)
        assert message == error["message"]


def test_grpc_in_the_clear_is_refused_off_loopback() -> None:
    with pytest.raises(ValueError, match=r"grpc_address '0.0.0.0:8081' is not loopback"):
        ListenSettings(grpc_address="0.0.0.0:8081")


def _self_signed(certificate: Path, key: Path) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(private, hashes.SHA256())
    )
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
