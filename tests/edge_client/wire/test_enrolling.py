"""An enrolment that is interrupted anywhere can be done again, and so can a whole one."""

import asyncio
import hashlib
import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

import edge_client.wire.coordinator_keys as coordinator_keys_module
import edge_client.wire.enrolling as enrolling_module
from edge_client.folder.layout import DeviceFolder, DeviceFolderError, Enrolment
from edge_client.wire.enrolling import enrol_device, renew_certificates
from edge_client.wire.refusal import RefusedError, UnreachableError
from edge_client.wire.transport import Transport
from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import CertificateError, KeyUse
from privacy.identities.chains import split_chain
from privacy.identities.invite import Invite, OtherAddress
from privacy.identities.issuing_key import make_issuing_key
from privacy.identities.keys import KeyFileError, public_key_sha256
from privacy.identities.party import Identity
from privacy.identities.signing_requests import SigningRequests, read_signing_request
from privacy.identities.succession import state_successor
from protos import federation_pb2 as wire
from tests.privacy.conftest import RUN, enrol

DAY_S = 86_400


@dataclass
class Coordinator:
    """Certify whoever asks, and note how often.

    Attributes:
        asked: Signing requests that came, as their TLS request.
        asked_at: The addresses to which they came.
        failure: What the next call raises instead.
        name: Whom the invites are for.
        now: Seconds since 1970 UTC, by the clocks of both ends.
        days: Life of the certificates that it gives.
        certified_name: In which name it certifies; empty for ``name``.
        former: What it shows about authorities before its own, DER.
    """

    authority: CertificateAuthority
    identity: Identity
    asked: list[bytes] = field(default_factory=list)
    asked_at: list[str] = field(default_factory=list)
    failure: Exception | None = None
    name: str = "device-0001"
    now: float = field(default_factory=time.time)
    days: float = 90.0
    certified_name: str = ""

    former: list[bytes] = field(default_factory=list)

    async def show(self, address: str, own: object = None) -> list[bytes]:
        return [*split_chain(self.identity.certificates.tls), *self.former]

    async def enrol(
        self, address: str, ca: bytes, token: bytes, requests: wire.SigningRequests
    ) -> wire.EnrolResponse:
        self.asked.append(requests.tls)
        self.asked_at.append(address)
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        asked = SigningRequests(requests.tls, requests.wrapping, requests.signing)
        given = self.authority.issue_all(
            asked,
            name=self.certified_name or self.name,
            role="device",
            days=self.days,
            now=self.now,
        )
        own = self.identity.certificates
        return wire.EnrolResponse(
            client_name=self.name,
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
    monkeypatch.setattr(enrolling_module, "shown_certificates", coordinator.show)
    monkeypatch.setattr(coordinator_keys_module, "shown_certificates", coordinator.show)
    return coordinator


def invite_of(ca: bytes, *, run: str = RUN.hex(), port: int = 7441) -> Invite:
    return Invite(
        run=run,
        enrolment_address="localhost:7440",
        device_address=f"localhost:{port}",
        ca_certificate=ca,
        ca_sha256=hashlib.sha256(ca).hexdigest(),
        token="ab" * 16,
        expires_at=time.time() + 60,
    )


def enrolled(folder: DeviceFolder, coordinator: Coordinator, *, port: int = 7441) -> Enrolment:
    invite = invite_of(coordinator.authority.certificate, port=port)
    return asyncio.run(enrol_device(folder, invite, now=coordinator.now))


async def renewed(folder: DeviceFolder, coordinator: Coordinator) -> None:
    """Renew with a transport that asks this coordinator."""

    class Renewing(Transport):
        def __init__(self) -> None:  # No channel: nothing here speaks gRPC.
            pass

        async def renew(self, requests: wire.SigningRequests) -> wire.RenewCertificatesResponse:
            given = await coordinator.enrol("", b"", b"", requests)
            return wire.RenewCertificatesResponse(
                device=given.device, coordinator=given.coordinator
            )

    ca = coordinator.authority.certificate
    await renew_certificates(folder, ca, Renewing(), now=coordinator.now)


def crash(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_device_keeps_its_own_keys_and_the_coordinators(
    tmp_path: Path, coordinator: Coordinator
) -> None:
    folder = DeviceFolder(tmp_path / "device")

    enrolment = enrolled(folder, coordinator)

    assert folder.enrolment() == enrolment
    assert (enrolment.client_name, enrolment.device_address) == ("device-0001", "localhost:7441")
    assert Identity.load(folder.identity).name == "device-0001"
    assert folder.coordinator().signing == coordinator.identity.certificates.signing


def test_a_device_enrols_at_the_first_of_several_addresses_that_is_the_coordinators(
    tmp_path: Path, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, met = DeviceFolder(tmp_path / "device"), list[str]()
    ca = coordinator.authority.certificate
    stranger = CertificateAuthority.create(tmp_path / "stranger", RUN.hex())
    others = tuple(
        OtherAddress(enrolment_address=f"{host}:7440", device_address=f"{host}:7441")
        for host in ("elsewhere.test", "taken.test", "127.0.0.1")
    )
    invite = msgspec.structs.replace(invite_of(ca), other_addresses=others)

    async def show(address: str) -> list[bytes]:
        met.append(address)
        if address.startswith("localhost"):
            raise UnreachableError(f"{address} cannot be reached: refused")
        return [stranger.certificate] if "taken" in address else await coordinator.show(address)

    monkeypatch.setattr(enrolling_module, "shown_certificates", show)
    # A name that the certificate lacks, and a machine of somebody else, are no coordinator's.
    short = msgspec.structs.replace(invite, other_addresses=others[:2])
    with pytest.raises(UnreachableError) as failed:
        asyncio.run(enrol_device(folder, short, now=coordinator.now))
    assert "elsewhere.test:7440: the coordinator's certificate must name" in str(failed.value)
    assert "taken.test:7440: " in str(failed.value)
    assert coordinator.asked == []
    enrolment = asyncio.run(enrol_device(folder, invite, now=coordinator.now))

    assert (met[-1], coordinator.asked_at) == ("127.0.0.1:7440", ["127.0.0.1:7440"])
    assert folder.enrolment() == enrolment
    assert enrolment.device_addresses == invite.device_addresses


def test_a_device_keeps_the_helper_that_its_invite_names(
    tmp_path: Path, coordinator: Coordinator
) -> None:
    folder = DeviceFolder(tmp_path / "device")
    invite = msgspec.structs.replace(
        invite_of(coordinator.authority.certificate), helper_certificate=b"the helper's"
    )

    asyncio.run(enrol_device(folder, invite, now=coordinator.now))

    assert folder.enrolment().helper_certificate == b"the helper's"


def test_a_device_that_was_away_while_the_authority_was_replaced_enrols_again_in_its_folder(
    tmp_path: Path, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, now = DeviceFolder(tmp_path / "device"), time.time()
    enrolled(folder, coordinator)
    first = coordinator.authority
    second = CertificateAuthority.create(tmp_path / "second", RUN.hex(), now=now)
    issuer = make_issuing_key(tmp_path / "second", second, now=now)
    identity = enrol(issuer, tmp_path / "identity", "coordinator", "coordinator", now=now)
    statement = state_successor(first, second.certificate, now=now)
    former = [second.certificate, statement, first.certificate]
    later = Coordinator(issuer, identity, former=former)
    monkeypatch.setattr(enrolling_module, "enrol", later.enrol)
    monkeypatch.setattr(enrolling_module, "shown_certificates", later.show)
    monkeypatch.setattr(coordinator_keys_module, "shown_certificates", later.show)

    def again(authorities: set[str] | None) -> Enrolment:
        invite = invite_of(second.certificate)
        return asyncio.run(enrol_device(folder, invite, now=now, authorities=authorities))

    # Its owner is asked first, where the floor names the former one alone.
    with pytest.raises(UnreachableError, match="owner has not allowed"):
        again({first.fingerprint.hex()})
    assert folder.enrolment().ca_certificate == first.certificate
    again(None)

    assert folder.enrolment().ca_certificate == second.certificate
    assert Identity.load(folder.identity).authority == second.certificate
    assert folder.coordinator().signing == identity.certificates.signing


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


def test_certificates_in_another_name_are_not_kept(
    tmp_path: Path, coordinator: Coordinator
) -> None:
    folder = DeviceFolder(tmp_path / "device")
    coordinator.certified_name = "device-0002"
    with pytest.raises(CertificateError, match="name of device-0001, got device-0002"):
        enrolled(folder, coordinator)
    coordinator.certified_name = ""
    enrolled(folder, coordinator)

    # A device with two names would be two to the helper, in two sums of one attempt.
    coordinator.certified_name = "device-0002"
    before = Identity.load(folder.identity).certificates
    with pytest.raises(CertificateError, match="got device-0002"):
        asyncio.run(renewed(folder, coordinator))

    assert Identity.load(folder.identity).certificates == before


@pytest.mark.slow
def test_a_crash_before_the_last_file_needs_no_second_answer(
    tmp_path: Path, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = DeviceFolder(tmp_path / "device")

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

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(DeviceFolder, "save", crash)
        again(b"words")
    with pytest.raises(KeyFileError, match="passphrase is wrong"):
        again(b"other words")
    with pytest.raises(KeyFileError, match="give passphrase with --passphrase-file"):
        again(None)

    assert again(b"words").client_name == "device-0001"
    assert len(coordinator.asked) == 1


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_device_that_was_away_too_long_enrols_again_and_keeps_what_is_its_own(
    tmp_path: Path, coordinator: Coordinator
) -> None:
    folder = DeviceFolder(tmp_path / "device")
    coordinator.days = 1.0
    enrolled(folder, coordinator)
    before = Identity.load(folder.identity)
    for own in ("floor.toml", "client.toml", "example_privacy.json", "personal/current.state"):
        path = folder.path / own
        path.parent.mkdir(exist_ok=True)
        path.write_text(own)
    coordinator.now += 2 * DAY_S

    # The coordinator has moved meanwhile.
    enrolment = enrolled(folder, coordinator, port=9999)

    after = Identity.load(folder.identity)
    after.check_time(coordinator.now)
    assert after.certificates.tls != before.certificates.tls
    # What was sealed to the old key can still be opened.
    assert after.previous_wrapping is not None
    assert after.previous_wrapping.certified.der == before.certificates.wrapping
    assert folder.enrolment() == enrolment
    assert (enrolment.client_name, enrolment.device_address) == ("device-0001", "localhost:9999")
    for own in ("floor.toml", "client.toml", "example_privacy.json", "personal/current.state"):
        assert (folder.path / own).read_text() == own


@pytest.mark.slow
@pytest.mark.parametrize("other", ["run", "authority"])
def test_an_invite_of_another_federation_is_refused_before_its_token_is_used(
    tmp_path: Path, coordinator: Coordinator, other: str
) -> None:
    folder = DeviceFolder(tmp_path / "device")
    enrolment = enrolled(folder, coordinator)
    own = coordinator.authority.certificate
    if other == "run":
        invite = invite_of(own, run="ef" * 16)
    else:
        authority = CertificateAuthority.create(tmp_path / "other", RUN.hex())
        invite = invite_of(authority.certificate)

    with pytest.raises(DeviceFolderError, match=r"enrolled already.*use another folder"):
        asyncio.run(enrol_device(folder, invite, now=time.time()))

    assert len(coordinator.asked) == 1
    assert folder.enrolment() == enrolment


def test_an_invite_of_another_device_changes_nothing_in_the_folder(
    tmp_path: Path, coordinator: Coordinator
) -> None:
    folder = DeviceFolder(tmp_path / "device")
    enrolment = enrolled(folder, coordinator)
    before = Identity.load(folder.identity).certificates
    coordinator.name = "device-0002"

    with pytest.raises(DeviceFolderError, match="as device-0001, and the invite was for device-00"):
        enrolled(folder, coordinator)

    assert folder.enrolment() == enrolment
    assert Identity.load(folder.identity).certificates == before
    coordinator.name = "device-0001"
    enrolled(folder, coordinator)
    assert Identity.load(folder.identity).certificates != before


def test_a_missing_passphrase_is_told_before_a_token_is_used(
    tmp_path: Path, coordinator: Coordinator
) -> None:
    folder = DeviceFolder(tmp_path / "device")
    invite = invite_of(coordinator.authority.certificate)
    asyncio.run(enrol_device(folder, invite, now=time.time(), passphrase=b"words"))

    with pytest.raises(KeyFileError, match="give passphrase with --passphrase-file"):
        enrolled(folder, coordinator)

    assert len(coordinator.asked) == 1
    assert Identity.load(folder.identity, b"words").name == "device-0001"


def test_a_folder_on_which_an_agent_runs_is_not_enrolled_again(
    tmp_path: Path, coordinator: Coordinator
) -> None:
    folder = DeviceFolder(tmp_path / "device")
    enrolled(folder, coordinator)

    with (
        folder.sole_agent(),
        pytest.raises(DeviceFolderError, match="another sotto-client runs"),
    ):
        enrolled(folder, coordinator)

    assert len(coordinator.asked) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [
        "edge_client.folder.layout.DeviceFolder.save",
        "edge_client.folder.layout.DeviceFolder.save_coordinator",
        "privacy.identities.party.write_atomically",
        "privacy.identities.party.sync_folder",
        "privacy.identities.party.shutil.rmtree",
    ],
)
def test_enrolling_again_can_be_killed_anywhere_and_done_again(
    tmp_path: Path, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    folder = DeviceFolder(tmp_path / "device")
    for _ in range(2):
        enrolled(folder, coordinator)
    before = Identity.load(folder.identity).certificates

    # The first makes the keys, so that the second dies while they take the place of the old ones.
    for killed_at in ("edge_client.folder.layout.DeviceFolder.save", step):
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(killed_at, crash)
            enrolled(folder, coordinator)

    left = Identity.load(folder.identity)
    # Only the deleting of old generations comes after the change.
    assert (left.certificates != before) == step.endswith("rmtree")
    assert folder.enrolment().client_name == left.name == "device-0001"
    enrolled(folder, coordinator)
    assert Identity.load(folder.identity).certificates not in (before, left.certificates)


@pytest.mark.slow
def test_certificates_that_have_expired_are_not_taken_for_an_interrupted_enrolment(
    tmp_path: Path, coordinator: Coordinator
) -> None:
    folder = DeviceFolder(tmp_path / "device")
    coordinator.days = 1.0
    enrolled(folder, coordinator)
    (folder.path / "enrolment.json").unlink()
    coordinator.now += 2 * DAY_S

    enrolled(folder, coordinator)

    assert len(coordinator.asked) == 2
    Identity.load(folder.identity).check_time(coordinator.now)


@pytest.mark.slow
def test_an_identity_of_another_authority_is_not_taken_for_an_interrupted_enrolment(
    tmp_path: Path, coordinator: Coordinator
) -> None:
    folder = DeviceFolder(tmp_path / "device")
    enrolled(folder, coordinator)
    (folder.path / "enrolment.json").unlink()
    other = CertificateAuthority.create(tmp_path / "other", RUN.hex())

    with pytest.raises(DeviceFolderError, match="use another folder"):
        asyncio.run(enrol_device(folder, invite_of(other.certificate), now=time.time()))

    assert len(coordinator.asked) == 1
