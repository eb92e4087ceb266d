"""What a certificate proves, and everything it must not pass for."""

import re
from itertools import product
from pathlib import Path

import pytest

from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import (
    CertificateError,
    KeyUse,
    Role,
    certificate_der,
    certificate_pem,
    check_certificate,
    check_host,
    fingerprint,
    hostnames_of,
    read_certificate,
)
from privacy.identities.party import Identity
from tests.privacy.conftest import NOW, Federation

DAY = 86_400.0


def certificate_of(identity: Identity, use: KeyUse) -> bytes:
    der: bytes = getattr(identity.certificates, use)
    return der


@pytest.mark.slow
@pytest.mark.parametrize("use", KeyUse)
@pytest.mark.parametrize("party", ["device", "coordinator"])
def test_a_certificate_says_whose_key_it_is_and_for_what(
    federation: Federation, use: KeyUse, party: Role
) -> None:
    der = certificate_of(getattr(federation, party), use)

    certified = check_certificate(
        der, ca=federation.authority.certificate, use=use, role=party, now=NOW
    )

    name = "device-0001" if party == "device" else "coordinator"
    assert (certified.name, certified.use, certified.role) == (name, use, party)
    assert certified.sha256 == fingerprint(der)
    assert certified.not_after == NOW + 90 * DAY
    # Dated back by a day and an hour, for clocks that are a day slow.
    assert certified.not_before == NOW - 25 * 3600


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_a_changed_byte_anywhere_ends_in_an_error_of_ours_or_changes_nothing(
    federation: Federation,
) -> None:
    der, ca = federation.device.certificates.signing, federation.authority.certificate
    genuine = read_certificate(der)

    for position, flipped in product(range(len(der)), (0x01, 0x80)):
        changed = bytearray(der)
        changed[position] ^= flipped
        try:
            found = check_certificate(
                bytes(changed), ca=ca, use=KeyUse.SIGNING, role="device", now=NOW
            )
        except CertificateError:
            continue
        # How many bits of the signature's last byte count is outside of what it covers.
        assert (found.name, found.serial) == (genuine.name, genuine.serial)


@pytest.mark.parametrize(
    ("use", "wanted", "role"),
    [
        (use, wanted, role)
        for use, wanted, role in product(KeyUse, KeyUse, ("device", "coordinator"))
        if (use, "device") != (wanted, role)
    ],
)
def test_a_certificate_passes_for_nothing_else(
    federation: Federation, use: KeyUse, wanted: KeyUse, role: Role
) -> None:
    with pytest.raises(CertificateError, match=f"must be for {wanted} by a {role}, got {use} by"):
        check_certificate(
            certificate_of(federation.device, use),
            ca=federation.authority.certificate,
            use=wanted,
            role=role,
            now=NOW,
        )


def test_a_certificate_of_another_federation_is_refused(
    federation: Federation, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("elsewhere")
    # Same run, so the same authority name: only the signature tells them apart.
    elsewhere = CertificateAuthority.create(folder, bytes(range(16)).hex(), now=NOW)

    with pytest.raises(CertificateError, match="not issued by this federation's authority"):
        check_certificate(
            federation.device.certificates.signing,
            ca=elsewhere.certificate,
            use=KeyUse.SIGNING,
            role="device",
            now=NOW,
        )


@pytest.mark.parametrize(
    ("now", "state"),
    [
        (NOW - 25 * 3600 - 1, "is not valid yet"),
        (NOW + 90 * DAY + 1, "expired"),
        (NOW + 3650 * DAY, "expired"),
    ],
)
def test_a_certificate_is_refused_outside_its_dates(
    federation: Federation, now: float, state: str
) -> None:
    with pytest.raises(CertificateError, match=f"{state}.*set the clock, or renew"):
        check_certificate(
            federation.device.certificates.signing,
            ca=federation.authority.certificate,
            use=KeyUse.SIGNING,
            role="device",
            now=now,
        )


@pytest.mark.parametrize("off_by", [-DAY, DAY])
def test_a_fresh_certificate_works_on_a_clock_wrong_by_a_day(
    federation: Federation, off_by: float
) -> None:
    certified = check_certificate(
        federation.device.certificates.tls,
        ca=federation.authority.certificate,
        use=KeyUse.TLS,
        role="device",
        now=NOW + off_by,
    )

    assert certified.name == "device-0001"


def test_renewal_is_due_at_two_thirds_of_ninety_days(federation: Federation) -> None:
    certified = federation.device.tls.certified

    assert certified.renewal_due_at == NOW + 60 * DAY


@pytest.mark.parametrize("position", [4, 100, 200, -5])
def test_a_changed_certificate_is_refused(federation: Federation, position: int) -> None:
    der = bytearray(federation.device.certificates.signing)
    der[position] ^= 1

    with pytest.raises(CertificateError):
        check_certificate(
            bytes(der),
            ca=federation.authority.certificate,
            use=KeyUse.SIGNING,
            role="device",
            now=NOW,
        )


@pytest.mark.parametrize("rubbish", [b"", b"\x30", b"not a certificate", bytes(1000)])
def test_rubbish_is_no_certificate(rubbish: bytes) -> None:
    with pytest.raises(CertificateError, match="cannot be read"):
        read_certificate(rubbish)


def test_the_authority_is_no_party(federation: Federation) -> None:
    with pytest.raises(CertificateError):
        read_certificate(federation.authority.certificate)


def test_a_certificate_has_one_der_whatever_its_wrapping(federation: Federation) -> None:
    der = federation.device.certificates.tls

    assert certificate_der(certificate_pem(der)) == der


def test_pem_that_holds_no_certificate_is_refused() -> None:
    with pytest.raises(CertificateError, match="PEM"):
        certificate_der(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    with pytest.raises(CertificateError, match="DER"):
        certificate_pem(b"AAAA")


@pytest.mark.slow
def test_the_names_in_a_certificate_are_read_back(federation: Federation, tmp_path: Path) -> None:
    requests = Identity.create_requests(tmp_path, "coordinator")
    names = ["sotto.test", "10.0.0.7", "::1", "*.fl.test"]

    given = federation.authority.issue_all(
        requests, name="coordinator", role="coordinator", hostnames=names, now=NOW
    )

    assert hostnames_of(given.tls) == names
    assert hostnames_of(given.signing) == []
    # A star stands for one label, RFC 6125, section 6.4.3; an address has many spellings.
    for host in ("Sotto.Test", "sotto.test.", "10.0.0.7", "0:0::0:1", "a.fl.test"):
        check_host(given.tls, host)
    for host in ("b.test", "x.sotto.test", "fl.test", "a.b.fl.test", "0.0.7", "::2", ""):
        told = f"must name {re.escape(host)}, got sotto.test, 10.0.0.7, ::1, [*].fl.test; "
        with pytest.raises(CertificateError, match=told):
            check_host(given.tls, host)
    with pytest.raises(CertificateError, match="got no name"):
        check_host(given.signing, "sotto.test")
    with pytest.raises(CertificateError, match="cannot be read"):
        hostnames_of(b"rubbish")
