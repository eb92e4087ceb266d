"""An identity is whole or absent, before, during and after a renewal."""

import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

import pytest

from privacy.foundation.atomic_files import write_atomically
from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import CertificateError, Certificates
from privacy.identities.keys import KeyFileError, public_key_sha256
from privacy.identities.party import Identity
from privacy.identities.signatures import Purpose, verify
from privacy.sealing.envelope import MessageContext, UnsealError, open_sealed, seal
from tests.privacy.conftest import NOW, RUN, Federation, enrol

DAY = 86_400.0


@dataclass(frozen=True)
class Home:
    """Hold an authority and the folder of a device that it certified."""

    authority: CertificateAuthority
    folder: Path

    def renew(self, now: float = NOW) -> Identity:
        return enrol(self.authority, self.folder, "device-0001", "device", now=now)


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Home:
    folder = tmp_path_factory.mktemp("enrolled")
    home = Home(CertificateAuthority.create(folder / "ca", RUN.hex(), now=NOW), folder / "device")
    home.renew()
    return home


@pytest.fixture
def home(enrolled: Home, tmp_path: Path) -> Home:
    """A copy that a test may break."""
    shutil.copytree(enrolled.folder, tmp_path / "device")
    return Home(enrolled.authority, tmp_path / "device")


def test_an_identity_comes_back_from_its_folder(home: Home) -> None:
    loaded = Identity.load(home.folder)

    assert (loaded.name, loaded.role) == ("device-0001", "device")
    assert loaded.authority == home.authority.certificate
    assert loaded.previous_wrapping is None
    keys = {
        public_key_sha256(pair.certified.public_key)
        for pair in (loaded.tls, loaded.wrapping, loaded.signing)
    }
    assert len(keys) == 3


def test_every_file_is_owner_only(home: Home) -> None:
    modes = {path.is_dir(): stat.S_IMODE(path.stat().st_mode) for path in home.folder.rglob("*")}

    assert modes == {True: 0o700, False: 0o600}


def test_what_an_identity_signs_its_certificate_verifies(home: Home) -> None:
    loaded = Identity.load(home.folder)

    signature = loaded.sign(b"release", purpose=Purpose.RELEASE)

    verify(loaded.signing.certified.public_key, b"release", signature, purpose=Purpose.RELEASE)


@pytest.mark.slow
def test_a_renewal_replaces_all_keys_and_keeps_the_wrapping_key_before(home: Home) -> None:
    first = Identity.load(home.folder)
    second = home.renew(NOW + 60 * DAY)
    third = home.renew(NOW + 120 * DAY)

    assert second.previous_wrapping is not None
    assert second.previous_wrapping.certified == first.wrapping.certified
    assert third.previous_wrapping is not None
    assert third.previous_wrapping.certified == second.wrapping.certified
    assert {first.tls.certified.sha256, second.tls.certified.sha256} & {
        third.tls.certified.sha256
    } == set()
    # The first generation is destroyed, keys and all.
    assert sorted(path.name for path in home.folder.iterdir()) == ["0002", "0003", "identity.json"]


@pytest.mark.slow
def test_a_message_under_way_survives_one_renewal_but_not_two(
    home: Home, federation: Federation, downlink: MessageContext
) -> None:
    recipient = Identity.load(home.folder).wrapping.certified
    sealed = seal(b"model", downlink, sender=federation.coordinator, recipient=recipient)
    message = list(map(bytes, sealed.views()))

    def opened_by(identity: Identity) -> memoryview:
        return open_sealed(
            message,
            downlink,
            payload_bytes=5,
            recipient=identity,
            sender=federation.coordinator.signing.certified,
        )

    assert bytes(opened_by(home.renew())) == b"model"
    with pytest.raises(UnsealError):
        opened_by(home.renew())


def test_renewal_is_due_at_two_thirds_and_expiry_is_told(home: Home) -> None:
    loaded = Identity.load(home.folder)

    assert not loaded.due_for_renewal(NOW + 59 * DAY)
    assert loaded.due_for_renewal(NOW + 60 * DAY)
    loaded.check_time(NOW + 90 * DAY)
    with pytest.raises(CertificateError, match="expired"):
        loaded.check_time(NOW + 91 * DAY)


@pytest.mark.slow
def test_an_interrupted_enrolment_asks_again_for_the_same_keys(tmp_path: Path) -> None:
    Identity.create_requests(tmp_path / "device", "device")
    kept = (tmp_path / "device" / "pending" / "signing.key").read_bytes()

    Identity.create_requests(tmp_path / "device", "device")

    assert (tmp_path / "device" / "pending" / "signing.key").read_bytes() == kept


def test_an_answer_for_other_keys_changes_nothing(home: Home, federation: Federation) -> None:
    before = Identity.load(home.folder)
    Identity.create_requests(home.folder, "device")

    with pytest.raises(CertificateError, match="not issued by"):
        install(home, federation.device.certificates)
    with pytest.raises(CertificateError, match="is for another key than the one kept here"):
        install(home, before.certificates)

    assert Identity.load(home.folder).certificates == before.certificates


def test_three_certificates_have_one_name(home: Home) -> None:
    requests = Identity.create_requests(home.folder, "device")
    one, two = (
        home.authority.issue_all(requests, name=name, role="device", now=NOW)
        for name in ("device-0001", "device-0002")
    )

    with pytest.raises(CertificateError, match="must have one name"):
        install(home, Certificates(one.tls, two.wrapping, one.signing))


def test_certificates_in_the_wrong_places_are_refused(home: Home) -> None:
    requests = Identity.create_requests(home.folder, "device")
    issued = home.authority.issue_all(requests, name="device-0001", role="device", now=NOW)

    with pytest.raises(CertificateError, match="must be for wrapping by a device, got signing"):
        install(home, Certificates(issued.tls, issued.signing, issued.wrapping))


def install(home: Home, certificates: Certificates) -> Identity:
    ca = home.authority.certificate
    return Identity.install(home.folder, certificates, ca=ca, role="device", now=NOW)


class PowerCutError(Exception):
    """Stands for the end of the process."""


@pytest.mark.slow
@pytest.mark.parametrize("fatal_write", range(1, 6))
def test_a_crash_in_a_renewal_leaves_the_old_identity_and_can_be_repeated(
    home: Home, monkeypatch: pytest.MonkeyPatch, fatal_write: int
) -> None:
    # Four certificate files are written, then the pending folder renamed, then the pointer written.
    before = Identity.load(home.folder)
    writes = 0

    def write_until_the_cut(path: Path, data: bytes) -> None:
        nonlocal writes
        writes += 1
        if writes == fatal_write:
            raise PowerCutError
        write_atomically(path, data)

    monkeypatch.setattr("privacy.identities.party.write_atomically", write_until_the_cut)
    with pytest.raises(PowerCutError):
        home.renew()
    monkeypatch.undo()

    assert Identity.load(home.folder).certificates == before.certificates
    asked = _keys_in(home.folder / "pending") | _keys_in(home.folder / "0002")
    after = home.renew()
    # The authority may have certified these keys already: asking again is for the same ones.
    assert _keys_in(home.folder / "0002") == asked
    assert after.previous_wrapping is not None
    assert after.previous_wrapping.certified == before.wrapping.certified
    assert after.certificates != before.certificates


def test_a_folder_without_an_identity_says_so(tmp_path: Path) -> None:
    with pytest.raises(
        KeyFileError, match="holds no identity: a device gets one by `sotto-client enrol`"
    ):
        Identity.load(tmp_path)


def test_installing_without_pending_keys_says_so(home: Home) -> None:
    certificates = Identity.load(home.folder).certificates

    with pytest.raises(KeyFileError, match=r"tls\.key cannot be read"):
        install(home, certificates)


def test_a_damaged_pointer_is_named(home: Home) -> None:
    (home.folder / "identity.json").write_text('{"current": "two"}')

    with pytest.raises(KeyFileError, match=r"identity\.json cannot be read"):
        Identity.load(home.folder)


def test_a_folder_that_others_can_enter_is_refused(home: Home) -> None:
    home.folder.chmod(0o755)

    with pytest.raises(KeyFileError, match="chmod 700"):
        Identity.create_requests(home.folder, "device")
    with pytest.raises(KeyFileError, match="chmod 700"):
        Identity.load(home.folder)


def test_a_missing_certificate_is_named(home: Home) -> None:
    (home.folder / "0001" / "wrapping.crt").unlink()

    with pytest.raises(KeyFileError, match=r"wrapping\.crt cannot be read"):
        Identity.load(home.folder)


def test_a_passphrase_locks_every_key(home: Home, tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    requests = Identity.create_requests(folder, "device", passphrase=b"words")
    issued = home.authority.issue_all(requests, name="device-0003", role="device", now=NOW)
    ca = home.authority.certificate
    Identity.install(folder, issued, ca=ca, role="device", now=NOW, passphrase=b"words")

    assert Identity.load(folder, b"words").name == "device-0003"
    with pytest.raises(KeyFileError, match="is encrypted"):
        Identity.load(folder)


def _keys_in(folder: Path) -> set[bytes]:
    return {path.read_bytes() for path in folder.glob("*.key")}
