"""An enrolment that is interrupted anywhere can be done again with the same invite."""

import asyncio
import hashlib
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import edge_client.enrolling as enrolling_module
from edge_client.device_folder import DeviceFolder, DeviceFolderError, Enrolment
from edge_client.enrolling import enrol_device
from edge_client.refusal import RefusedError, UnreachableError
from privacy.authority import CertificateAuthority
from privacy.certificates import CertificateError, KeyUse
from privacy.identity import Identity
from privacy.invite import Invite
from privacy.keys import KeyFileError, public_key_sha256
from privacy.signing_requests import SigningRequests, read_signing_request
from protos import federation_pb2 as wire
from tests.privacy.conftest import RUN, enrol


@dataclass
class Coordinator:
    """Certify whoever asks, and note how often.

    Attributes:
        asked: Signing requests that came, as their TLS request.
        failure: What the next call raises instead.
    """

    authority: CertificateAuthority
    identity: Identity
    asked: list[bytes] = field(default_factory=list)
    failure: Exception | None = None

    async def enrol(
        self, address: str, ca: bytes, token: bytes, requests: wire.SigningRequests
    ) -> wire.EnrolResponse:
        self.asked.append(requests.tls)
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        asked = SigningRequests(requests.tls, requests.wrapping, requests.signing)
        given = self.authority.issue_all(asked, name="device-0001", role="device")
        own = self.identity.certificates
        return wire.EnrolResponse(
            client_name="device-0001",
            device=wire.Certificates(tls=given.tls, wrapping=given.wrapping, signing=given.signing),
            coordinator=wire.Certificates(wrapping=own.wrapping, signing=own.signing),
        )


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> tuple[CertificateAuthority, Identity]:
    root = tmp_path_factory.mktemp("coordinator")
    now = time.time()
    authority = CertificateAuthority.create(root / "authority", RUN.hex(), now=now)
    return authority, enrol(authority, root / "identity", "coordinator", "coordinator", now=now)


@pytest.fixture
def coordinator(
    certified: tuple[CertificateAuthority, Identity], monkeypatch: pytest.MonkeyPatch
) -> Coordinator:
    coordinator = Coordinator(*certified)
    monkeypatch.setattr(enrolling_module, "enrol", coordinator.enrol)
    return coordinator


def invite_of(ca: bytes) -> Invite:
    return Invite(
        run=RUN.hex(),
        enrolment_address="localhost:7440",
        device_address="localhost:7441",
        ca_certificate=ca,
        ca_sha256=hashlib.sha256(ca).hexdigest(),
        token="ab" * 16,
        expires_at=time.time() + 60,
    )


def enrolled(folder: DeviceFolder, coordinator: Coordinator) -> Enrolment:
    invite = invite_of(coordinator.authority.certificate)
    return asyncio.run(enrol_device(folder, invite, now=time.time()))


def test_a_device_keeps_its_own_keys_and_the_coordinators(
    tmp_path: Path, coordinator: Coordinator
) -> None:
    folder = DeviceFolder(tmp_path / "device")

    enrolment = enrolled(folder, coordinator)

    assert folder.enrolment() == enrolment
    assert (enrolment.client_name, enrolment.device_address) == ("device-0001", "localhost:7441")
    assert Identity.load(folder.identity).name == "device-0001"
    assert folder.coordinator().signing == coordinator.identity.certificates.signing
    with pytest.raises(DeviceFolderError, match="enrolled already"):
        enrolled(folder, coordinator)


def test_a_lost_answer_is_asked_for_again_with_the_same_keys(
    tmp_path: Path, coordinator: Coordinator
) -> None:
    folder = DeviceFolder(tmp_path / "device")
    coordinator.failure = UnreachableError("unavailable: connection lost")

    with pytest.raises(UnreachableError):
        enrolled(folder, coordinator)
    enrolled(folder, coordinator)

    # The token is bound to the keys of the first try by now.
    keys = {
        public_key_sha256(read_signing_request(request, KeyUse.TLS))
        for request in coordinator.asked
    }
    assert (len(coordinator.asked), len(keys)) == (2, 1)


def test_a_crash_before_the_last_file_needs_no_second_answer(
    tmp_path: Path, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = DeviceFolder(tmp_path / "device")

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(DeviceFolder, "save", crash)
        enrolled(folder, coordinator)
    with pytest.raises(DeviceFolderError, match="is not enrolled"):
        folder.enrolment()

    assert enrolled(folder, coordinator).client_name == "device-0001"
    assert len(coordinator.asked) == 1


def test_an_interrupted_enrolment_with_a_passphrase_goes_on_with_that_one_only(
    tmp_path: Path, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = DeviceFolder(tmp_path / "device")
    invite = invite_of(coordinator.authority.certificate)

    def again(passphrase: bytes | None) -> Enrolment:
        return asyncio.run(enrol_device(folder, invite, now=time.time(), passphrase=passphrase))

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(DeviceFolder, "save", crash)
        again(b"words")
    with pytest.raises(KeyFileError, match="passphrase is wrong"):
        again(b"other words")
    with pytest.raises(KeyFileError, match="give passphrase with --passphrase-file"):
        again(None)

    assert again(b"words").client_name == "device-0001"
    assert len(coordinator.asked) == 1


@pytest.mark.parametrize("code", ["token_used", "token_expired", "version_mismatch"])
def test_a_refusal_leaves_the_device_unenrolled(
    tmp_path: Path, coordinator: Coordinator, code: str
) -> None:
    folder = DeviceFolder(tmp_path / "device")
    coordinator.failure = RefusedError(code, "as told")

    with pytest.raises(RefusedError, match=code):
        enrolled(folder, coordinator)

    with pytest.raises(DeviceFolderError, match="is not enrolled"):
        folder.enrolment()


def test_an_answer_of_another_authority_is_not_kept(
    tmp_path: Path, coordinator: Coordinator
) -> None:
    folder = DeviceFolder(tmp_path / "device")
    other = CertificateAuthority.create(tmp_path / "other", RUN.hex())
    invite = invite_of(other.certificate)

    with pytest.raises(CertificateError):
        asyncio.run(enrol_device(folder, invite, now=time.time()))

    with pytest.raises(DeviceFolderError, match="is not enrolled"):
        folder.enrolment()
