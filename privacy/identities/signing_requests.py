"""Requests for a certificate, which prove that their sender has the key (PKCS#10, RFC 2986).

A request names one use and is signed with the key it carries, so nobody can have a key certified
that they do not hold, nor a signing key as a wrapping one. The name in it is only a label: what
the certificate says is the authority's decision.
"""

from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from privacy.identities.certificates import CertificateError, KeyUse, check_kind
from privacy.identities.keys import PrivateKey, PublicKey

MAX_REQUEST_BYTES = 16 * 1024

# Errors of the library over bytes that are no request, or one of a kind that nobody makes.
_UNREADABLE = (
    ValueError,
    TypeError,
    InvalidSignature,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
)


class SigningRequests(NamedTuple):
    """One party's three requests, PKCS#10 DER; fields are named as `KeyUse` values."""

    tls: bytes
    wrapping: bytes
    signing: bytes


def make_signing_request(key: PrivateKey, name: str, use: KeyUse) -> bytes:
    """Return a request, PKCS#10 DER, signed with the key itself.

    Raises:
        CertificateError: If the key is not of the kind its use takes.
        ValueError: If ``name`` does not have 1 to 64 characters.
    """
    check_kind(key.public_key(), use)
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name(
            [
                x509.NameAttribute(NameOID.COMMON_NAME, name),
                x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, use.value),
            ]
        )
    )
    return builder.sign(key, SHA256()).public_bytes(Encoding.DER)


def read_signing_request(request: bytes, use: KeyUse) -> PublicKey:
    """Return the key of a request after checking that its sender holds the private half.

    Raises:
        CertificateError: If the request cannot be read, is for another use, carries a key of the
            wrong kind, or is not signed with that key.
    """
    if len(request) > MAX_REQUEST_BYTES:
        raise CertificateError(
            f"signing request must have at most {MAX_REQUEST_BYTES} bytes, got {len(request)}"
        )
    try:
        parsed = x509.load_der_x509_csr(request)
        public_key = parsed.public_key()
        units = parsed.subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
        # Before the signature: the time to verify one follows the size of the key.
        checked = check_kind(public_key, use)
        proven = parsed.is_signature_valid
    except _UNREADABLE:
        raise CertificateError("signing request cannot be read: it must be PKCS#10, DER") from None
    if not proven:
        raise CertificateError("signing request must be signed with the key it carries")
    if [unit.value for unit in units] != [use.value]:
        raise CertificateError(f"signing request must be for the use {use.value}")
    return checked
