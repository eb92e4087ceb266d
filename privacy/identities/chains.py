"""Chains of certificates: a party's own, then that of the issuing key which signed it.

A chain is the DER of its certificates, one behind the other, as a PEM file of a chain holds them. A
chain of one was signed by the authority itself. An issuing key is one that the authority certified
for signing certificates of parties and nothing else (path length 0), for a limited time: it lies
with the coordinator, while the authority's own key may lie anywhere else.
"""

from collections.abc import Iterable
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding

LONGEST_CHAIN = 2
_NO_CERTIFICATE = "certificate cannot be read: it must be one that sotto made, X.509, DER"
_SEQUENCE = 0x30
_LONG_FORM = 0x80
# Errors of the library over bytes that are no certificate, or one of a kind that nobody makes.
UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.ExtensionNotFound,
    x509.DuplicateExtension,
    x509.InvalidVersion,
)


class CertificateError(Exception):
    """Raised when a certificate or a request is not what it must be; the text says why."""


def split_chain(chain: bytes) -> list[bytes]:
    """Return the DER of each certificate of a chain, a party's own first.

    Raises:
        CertificateError: If the bytes are not one or two DER sequences.
    """
    parts: list[bytes] = []
    rest = chain
    while rest and len(parts) < LONGEST_CHAIN:
        size = _size_of_first(rest)
        parts.append(rest[:size])
        rest = rest[size:]
    if rest or not parts:
        raise CertificateError(_NO_CERTIFICATE)
    return parts


def parsed_chain(chain: bytes) -> list[x509.Certificate]:
    """Return a chain's certificates; CertificateError if one cannot be read."""
    try:
        return [x509.load_der_x509_certificate(part) for part in split_chain(chain)]
    except UNREADABLE:
        raise CertificateError(_NO_CERTIFICATE) from None


def encoded_chain(certificates: Iterable[x509.Certificate]) -> bytes:
    """Return the bytes of a chain."""
    return b"".join(certificate.public_bytes(Encoding.DER) for certificate in certificates)


def check_links(chain: bytes, *, ca: bytes, moment: datetime | None) -> None:
    """Check that each certificate of a chain was signed by the next one, and the last by the CA.

    ``ca``, DER, may be the issuing key's certificate itself. The issuing key must be valid at
    ``moment``, if given.

    Raises:
        CertificateError: If a link does not hold.
    """
    certificate, *issuing = parsed_chain(chain)
    issuer = certificate
    try:
        authority = x509.load_der_x509_certificate(ca)
        for link in issuing:
            _check_issuing(link, moment)
            certificate.verify_directly_issued_by(link)
            issuer = link
        if issuer is certificate or issuer != authority:
            issuer.verify_directly_issued_by(authority)
    except (*UNREADABLE, InvalidSignature):
        raise CertificateError(
            "certificate was not issued by this federation's authority; enrol with an invite of "
            "this federation"
        ) from None


def _check_issuing(link: x509.Certificate, moment: datetime | None) -> None:
    """Check that a certificate is an issuing key's; ValueError if it is for anything else."""
    constraints = link.extensions.get_extension_for_class(x509.BasicConstraints).value
    usage = link.extensions.get_extension_for_class(x509.KeyUsage).value
    # An authority that passed for its own issuing key would make old certificates look new.
    is_root = link.subject == link.issuer
    if is_root or not constraints.ca or constraints.path_length != 0 or not usage.key_cert_sign:
        raise ValueError("not an issuing key")
    if moment is not None and not link.not_valid_before_utc <= moment <= link.not_valid_after_utc:
        begins, ends = link.not_valid_before_utc, link.not_valid_after_utc
        raise CertificateError(
            f"the issuing key's certificate is valid from {begins:%Y-%m-%d %H:%M} to "
            f"{ends:%Y-%m-%d %H:%M} UTC and this clock says "
            f"{moment:%Y-%m-%d %H:%M}; set the clock, or have the operator run "
            "`sotto-server rotate-issuing-key`"
        )


def _size_of_first(encoded: bytes) -> int:
    """Return how many bytes the DER sequence takes that ``encoded`` begins with (X.690, 8.1)."""
    if len(encoded) < 2 or encoded[0] != _SEQUENCE:
        raise CertificateError(_NO_CERTIFICATE)
    first = encoded[1]
    if first < _LONG_FORM:
        return 2 + first
    count = first - _LONG_FORM
    return 2 + count + int.from_bytes(encoded[2 : 2 + count])
