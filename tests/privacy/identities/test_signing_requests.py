"""Proof of possession, and one use for each key."""

from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from privacy.identities.certificates import CertificateError, KeyUse
from privacy.identities.keys import PrivateKey, make_tls_key, public_key_sha256
from privacy.identities.party import rsa_key
from privacy.identities.signing_requests import make_signing_request, read_signing_request
from tests.privacy.conftest import Federation


def request_by_hand(key: PrivateKey, use: str) -> bytes:
    """Make a request that sotto's own function would refuse to make."""
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, "device"),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, use),
        ]
    )
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    return builder.sign(key, SHA256()).public_bytes(Encoding.DER)


@pytest.mark.parametrize("use", [KeyUse.WRAPPING, KeyUse.SIGNING])
def test_a_request_carries_the_key_that_signed_it(federation: Federation, use: KeyUse) -> None:
    key = rsa_key(federation.device.wrapping)

    read = read_signing_request(make_signing_request(key, "device", use), use)

    assert public_key_sha256(read) == public_key_sha256(key.public_key())


@pytest.mark.parametrize("position", [40, 200, 350, -1])
def test_a_changed_request_is_refused(federation: Federation, position: int) -> None:
    request = bytearray(
        make_signing_request(rsa_key(federation.device.signing), "device", KeyUse.SIGNING)
    )
    request[position] ^= 1

    with pytest.raises(CertificateError):
        read_signing_request(bytes(request), KeyUse.SIGNING)


def test_a_request_signed_with_another_key_proves_nothing(federation: Federation) -> None:
    # The last 384 bytes are the signature: take them from a request of the other device.
    requests = [
        make_signing_request(rsa_key(party.signing), "device", KeyUse.SIGNING)
        for party in (federation.device, federation.other_device)
    ]

    with pytest.raises(CertificateError, match="signed with the key it carries"):
        read_signing_request(requests[0][:-384] + requests[1][-384:], KeyUse.SIGNING)


def test_a_request_serves_the_use_it_names_only(federation: Federation) -> None:
    request = make_signing_request(rsa_key(federation.device.signing), "device", KeyUse.SIGNING)

    with pytest.raises(CertificateError, match="must be for the use wrapping"):
        read_signing_request(request, KeyUse.WRAPPING)


@pytest.mark.parametrize(
    ("use", "make_key", "rule"),
    [
        (KeyUse.TLS, lambda: ec.generate_private_key(ec.SECP384R1()), "must be ECDSA on P-256"),
        (KeyUse.WRAPPING, make_tls_key, "must be RSA"),
        (KeyUse.SIGNING, make_tls_key, "must be RSA"),
        (
            KeyUse.WRAPPING,
            lambda: rsa.generate_private_key(65537, 2048),
            "must have 3072 or 4096 bits and exponent 65537, got 2048 bits",
        ),
    ],
    ids=["tls-p384", "wrapping-ec", "signing-ec", "wrapping-2048"],
)
def test_a_key_of_the_wrong_kind_is_refused(
    use: KeyUse, make_key: Callable[[], PrivateKey], rule: str
) -> None:
    key = make_key()

    with pytest.raises(CertificateError, match=rule):
        make_signing_request(key, "device", use)
    with pytest.raises(CertificateError, match=rule):
        read_signing_request(request_by_hand(key, use), use)


def test_rsa_with_another_exponent_is_refused() -> None:
    key = rsa.generate_private_key(public_exponent=3, key_size=3072)

    with pytest.raises(CertificateError, match="exponent 65537, got 3072 bits and 3"):
        read_signing_request(request_by_hand(key, "signing"), KeyUse.SIGNING)


@pytest.mark.parametrize("rubbish", [b"", b"request", bytes(500)])
def test_rubbish_is_no_request(rubbish: bytes) -> None:
    with pytest.raises(CertificateError, match="must be PKCS#10"):
        read_signing_request(rubbish, KeyUse.TLS)


def test_a_huge_request_is_refused_unread() -> None:
    with pytest.raises(CertificateError, match="at most 16384 bytes, got 1000000"):
        read_signing_request(bytes(1_000_000), KeyUse.TLS)


def test_the_kind_of_key_is_looked_at_before_a_signature_is_verified() -> None:
    request = bytearray(request_by_hand(rsa.generate_private_key(65537, 2048), "signing"))
    # A damaged signature, for which there is no time to be spent.
    request[-1] ^= 1

    with pytest.raises(CertificateError, match="must have 3072 or 4096 bits"):
        read_signing_request(bytes(request), KeyUse.SIGNING)


@pytest.mark.slow
def test_three_requests_of_the_largest_keys_fit_an_enrolment_many_times_over() -> None:
    key = rsa.generate_private_key(65537, 4096)

    largest = len(make_signing_request(key, 64 * "n", KeyUse.WRAPPING))

    # The listener takes 64 KiB; each request may have 16.
    assert 3 * largest < (64 << 10) / 10
