"""An issuing key works in the authority's place, and within its bounds."""

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import (
    CLOCK_TOLERANCE,
    CertificateError,
    KeyUse,
    check_certificate,
    check_issuer,
    read_certificate,
)
from privacy.identities.issuing_key import ISSUING_FILE, load_issuer, make_issuing_key
from privacy.identities.keys import KeyFileError
from privacy.identities.party import Identity
from tests.privacy.conftest import NOW, RUN, enrol

DAY_S = 86_400.0


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority.create(tmp_path / "ca", RUN.hex(), passphrase=b"words", now=NOW)


def test_it_certifies_parties_while_the_authoritys_key_is_elsewhere(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    make_issuing_key(tmp_path / "ca", authority, now=NOW)
    (tmp_path / "ca" / "authority.key").unlink()

    issuer = load_issuer(tmp_path / "ca")
    identity = enrol(issuer, tmp_path / "device", "device-0001", "device")

    assert issuer.certificate == authority.certificate
    assert identity.authority == authority.certificate
    assert Identity.load(tmp_path / "device").certificates == identity.certificates
    assert identity.tls_certificate_pem.count(b"BEGIN CERTIFICATE") == 2
    # A key of 365 days does not sign for the day after.
    with pytest.raises(CertificateError, match="by the issuing key's end"):
        enrol(issuer, tmp_path / "late", "device-0002", "device", now=NOW + 276 * DAY_S)
    assert issuer.lasting(90, NOW + 335 * DAY_S) == pytest.approx(30)


def test_a_federation_without_one_has_its_authority_certify(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    CertificateAuthority.create(tmp_path / "old", RUN.hex(), now=NOW)

    issuer = load_issuer(tmp_path / "old")

    assert issuer.issuing == b""


@pytest.fixture
def older(authority: CertificateAuthority) -> CertificateAuthority:
    """Return an authority as they were made before there were issuing keys: path length 0."""
    key, root = authority._key, x509.load_der_x509_certificate(authority.certificate)
    usage = root.extensions.get_extension_for_class(x509.KeyUsage).value
    builder = (
        x509.CertificateBuilder()
        .subject_name(root.subject)
        .issuer_name(root.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(root.not_valid_before_utc)
        .not_valid_after(root.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return CertificateAuthority(key, builder.sign(key, SHA256()).public_bytes(Encoding.DER))


def test_an_authority_from_before_there_were_issuing_keys_may_certify_none(
    tmp_path: Path, older: CertificateAuthority
) -> None:
    with pytest.raises(CertificateError, match="replace-authority"):
        make_issuing_key(tmp_path / "ca", older, now=NOW)


def test_such_an_authority_does_not_pass_for_its_own_issuing_key(
    tmp_path: Path, older: CertificateAuthority
) -> None:
    # Else its certificate behind an old one would make that look as if a later key had issued it.
    der = enrol(older, tmp_path / "c", "coordinator", "coordinator").certificates.signing

    check_issuer(der, ca=older.certificate)
    with pytest.raises(CertificateError, match="not issued by"):
        check_issuer(der + older.certificate, ca=older.certificate)


def test_what_it_signs_is_refused_after_its_end_and_once_it_is_no_issuing_key(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    issuer = make_issuing_key(tmp_path / "ca", authority, now=NOW)
    der = enrol(issuer, tmp_path / "c", "coordinator", "coordinator").certificates.signing

    def check(der: bytes, now: float) -> None:
        ca = authority.certificate
        check_certificate(der, ca=ca, use=KeyUse.SIGNING, role="coordinator", now=now)

    check(der, NOW)
    with pytest.raises(CertificateError, match="issuing key's certificate is valid from"):
        check(der, NOW + 366 * DAY_S)
    leaf = enrol(authority, tmp_path / "d", "device-0001", "device").certificates.signing
    with pytest.raises(CertificateError, match="not issued by"):
        check(der[: -len(issuer.issuing)] + leaf, NOW)
    with pytest.raises(CertificateError, match="cannot be read"):
        check(der + issuer.issuing, NOW)


def test_a_later_one_is_newer_whatever_the_clock_did(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    first = make_issuing_key(tmp_path / "ca", authority, now=NOW)
    second = make_issuing_key(tmp_path / "ca", authority, now=NOW - 3600)
    old = enrol(first, tmp_path / "old", "coordinator", "coordinator", now=NOW + 60)
    new = enrol(second, tmp_path / "new", "coordinator", "coordinator", now=NOW)
    before = old.tls.certified.not_before

    requests = Identity.create_requests(tmp_path / "again", "coordinator")
    turned_back = second.issue_all(
        requests, name="coordinator", role="coordinator", now=NOW - 60, after=before
    )

    assert before == NOW + 60 - CLOCK_TOLERANCE.total_seconds()
    assert read_certificate(turned_back.tls).not_before == before + 1
    assert old.tls.certified.generation < new.tls.certified.generation


def test_a_damaged_file_is_named(tmp_path: Path, authority: CertificateAuthority) -> None:
    make_issuing_key(tmp_path / "ca", authority, now=NOW)
    path = tmp_path / "ca" / ISSUING_FILE
    key = path.read_bytes().partition(b"-----BEGIN CERTIFICATE")[0]

    path.write_bytes(key)

    with pytest.raises(KeyFileError, match=r"issuing\.pem holds no certificate"):
        load_issuer(tmp_path / "ca")
