"""Making an authority, keeping it, and what its TLS certificates do in a real handshake."""

import ssl
import time
from pathlib import Path

import pytest

from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import CertificateError, KeyUse, read_certificate
from privacy.identities.keys import KeyFileError, make_tls_key
from privacy.identities.party import Identity, rsa_key
from privacy.identities.signing_requests import SigningRequests, make_signing_request
from tests.privacy.conftest import NOW, RUN, Federation, enrol


def tls_request() -> bytes:
    return make_signing_request(make_tls_key(), "device", KeyUse.TLS)


def test_an_authority_comes_back_from_its_folder(tmp_path: Path) -> None:
    made = CertificateAuthority.create(tmp_path / "ca", RUN.hex(), now=NOW)

    loaded = CertificateAuthority.load(tmp_path / "ca")

    assert loaded.certificate == made.certificate
    assert loaded.fingerprint == made.fingerprint
    issued = loaded.issue(tls_request(), use=KeyUse.TLS, name="d", role="device", now=NOW)
    assert read_certificate(issued).name == "d"


def test_an_authority_is_never_overwritten(tmp_path: Path) -> None:
    CertificateAuthority.create(tmp_path, RUN.hex())

    with pytest.raises(KeyFileError, match="holds an authority already"):
        CertificateAuthority.create(tmp_path, RUN.hex())


def test_an_authority_with_a_passphrase_needs_it(tmp_path: Path) -> None:
    CertificateAuthority.create(tmp_path, RUN.hex(), passphrase=b"correct")

    CertificateAuthority.load(tmp_path, passphrase=b"correct")
    with pytest.raises(KeyFileError, match="damaged, or the passphrase is wrong"):
        CertificateAuthority.load(tmp_path, passphrase=b"wrong")
    with pytest.raises(KeyFileError, match="is encrypted: give passphrase"):
        CertificateAuthority.load(tmp_path)


def test_key_and_certificate_of_two_authorities_do_not_mix(tmp_path: Path) -> None:
    CertificateAuthority.create(tmp_path / "one", RUN.hex())
    CertificateAuthority.create(tmp_path / "two", RUN.hex())
    (tmp_path / "one" / "authority.crt").write_bytes(
        (tmp_path / "two" / "authority.crt").read_bytes()
    )

    with pytest.raises(KeyFileError, match="does not belong to"):
        CertificateAuthority.load(tmp_path / "one")


def test_a_missing_or_damaged_authority_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=r"authority\.key cannot be read"):
        CertificateAuthority.load(tmp_path)

    CertificateAuthority.create(tmp_path / "ca", RUN.hex())
    (tmp_path / "ca" / "authority.crt").write_bytes(b"half a cert")
    with pytest.raises(KeyFileError, match=r"authority\.crt: certificate cannot be read"):
        CertificateAuthority.load(tmp_path / "ca")


@pytest.mark.slow
@pytest.mark.parametrize("days", [0, -1, 3651, 1e6])
def test_a_certificate_lives_within_its_authority(federation: Federation, days: float) -> None:
    with pytest.raises(CertificateError, match="must end after 2027-01-15 and by the authority's"):
        federation.authority.issue(
            tls_request(), use=KeyUse.TLS, name="d", role="device", days=days, now=NOW
        )


@pytest.mark.slow
def test_serial_numbers_differ(federation: Federation) -> None:
    request = tls_request()

    serials = {
        read_certificate(
            federation.authority.issue(request, use=KeyUse.TLS, name="d", role="device", now=NOW)
        ).serial
        for _ in range(20)
    }

    assert len(serials) == 20


def test_one_key_is_not_certified_for_two_uses(federation: Federation) -> None:
    key = rsa_key(federation.device.signing)
    requests = SigningRequests(
        tls=tls_request(),
        wrapping=make_signing_request(key, "device", KeyUse.WRAPPING),
        signing=make_signing_request(key, "device", KeyUse.SIGNING),
    )

    with pytest.raises(CertificateError, match="three different keys"):
        federation.authority.issue_all(requests, name="d", role="device", now=NOW)


def test_the_name_is_the_authoritys_decision(federation: Federation) -> None:
    request = make_signing_request(make_tls_key(), "coordinator", KeyUse.TLS)

    issued = federation.authority.issue(
        request, use=KeyUse.TLS, name="device-0009", role="device", now=NOW
    )

    assert read_certificate(issued).name == "device-0009"


class Party:
    """Hold one end of a TLS connection in memory."""

    def __init__(self, context: ssl.SSLContext, *, server_side: bool, hostname: str | None) -> None:
        self.inbox, self.outbox = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.connection = context.wrap_bio(
            self.inbox, self.outbox, server_side=server_side, server_hostname=hostname
        )

    def advance(self) -> bool:
        """Go on with the handshake; return whether it is over."""
        try:
            self.connection.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True


def context_of(identity: Identity, folder: Path, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    chain = folder / f"{identity.name}.pem"
    chain.write_bytes(identity.tls_key_pem + identity.tls_certificate_pem)
    context.load_cert_chain(chain)
    context.load_verify_locations(cadata=identity.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def handshake(coordinator: Identity, device: Identity, folder: Path, hostname: str) -> Party:
    """Shake hands over mutual TLS 1.3 and return the coordinator's end."""
    listening = Party(
        context_of(coordinator, folder, ssl.PROTOCOL_TLS_SERVER), server_side=True, hostname=None
    )
    calling = Party(
        context_of(device, folder, ssl.PROTOCOL_TLS_CLIENT), server_side=False, hostname=hostname
    )
    for _ in range(4):
        done = calling.advance()
        listening.inbox.write(calling.outbox.read())
        done = listening.advance() and done
        calling.inbox.write(listening.outbox.read())
        if done:
            return listening
    raise AssertionError("handshake did not end")


@pytest.fixture(scope="module")
def today(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    """A federation of this very moment, because TLS libraries read the clock themselves."""
    folder = tmp_path_factory.mktemp("today")
    now = time.time()
    authority = CertificateAuthority.create(folder / "ca", RUN.hex(), now=now)
    device = enrol(authority, folder / "device", "device-0001", "device", now=now)
    coordinator = enrol(authority, folder / "coordinator", "coordinator", "coordinator", now=now)
    return Federation(authority, coordinator, device, device)


@pytest.mark.slow
@pytest.mark.parametrize("hostname", ["localhost", "127.0.0.1"])
def test_both_ends_of_a_handshake_know_each_other(
    today: Federation, tmp_path: Path, hostname: str
) -> None:
    end = handshake(today.coordinator, today.device, tmp_path, hostname)

    seen = end.connection.getpeercert(binary_form=True)
    assert seen == today.device.certificates.tls
    assert end.connection.version() == "TLSv1.3"


@pytest.mark.slow
def test_a_coordinator_under_another_name_is_not_believed(
    today: Federation, tmp_path: Path
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(today.coordinator, today.device, tmp_path, "elsewhere.example")


def test_a_device_cannot_play_the_coordinator(today: Federation, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="unsuitable certificate purpose"):
        handshake(today.device, today.device, tmp_path, "localhost")
