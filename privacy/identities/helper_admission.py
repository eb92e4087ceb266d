"""How a helper gets its certificates: a request file, and a file of certificates in return.

A helper is run by somebody else. Its owner sends the request to whoever holds the authority's key,
who certifies it with that key itself, never with the issuing key: the issuing key lies with the
coordinator, which must not be able to make a helper of its own. So a helper's certificates are
chains of one. Both files are public; what keeps a false one out is the authority's certificate,
which each side has from elsewhere.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from cryptography import x509
from cryptography.x509.oid import NameOID

from privacy.foundation.atomic_files import READABLE, write_atomically
from privacy.foundation.strict_json import LARGEST_RECORD_BYTES, read_json
from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import (
    CertificateError,
    Certificates,
    CertifiedKey,
    KeyUse,
    Role,
    certificate_pem,
    check_certificate,
    check_issuer,
    fingerprint,
    read_certificate,
)
from privacy.identities.chains import split_chain
from privacy.identities.keys import make_tls_key, private_key_pem
from privacy.identities.signing_requests import SigningRequests, make_signing_request

HELPER_NAME = "helper"
HELPER_DAYS = 365.0
# Before and after: a helper whose clock is days off says so, where a handshake would only fail.
_CALLER_DAYS = 7.0
_RUN_PREFIX = "sotto federation "


class HelperRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A helper's request for certificates.

    Attributes:
        format_version: Version of this struct.
        authority_sha256: Hex digest of the authority's certificate that the helper trusts.
        hostnames: Names and addresses under which the coordinator finds the helper.
        tls: Signing request, PKCS#10 DER, as are the next two.
    """

    format_version: Literal[1] = 1
    authority_sha256: str
    hostnames: list[str]
    tls: bytes
    wrapping: bytes
    signing: bytes

    @property
    def sha256(self) -> str:
        """Return the hex digest that both sides compare, by telephone say, over the requests."""
        requests = (self.tls, self.wrapping, self.signing)
        return fingerprint(b"".join(map(fingerprint, requests))).hex()


class HelperCertificates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A helper's certificates, as its owner, the coordinator and devices take them.

    Attributes:
        format_version: Version of this struct.
        authority_sha256: Hex digest of the authority's certificate.
        tls: Certificate, DER, as are the next two.
    """

    format_version: Literal[1] = 1
    authority_sha256: str
    tls: bytes
    wrapping: bytes
    signing: bytes

    @property
    def certificates(self) -> Certificates:
        """Return the three certificates, DER."""
        return Certificates(self.tls, self.wrapping, self.signing)


class CallerKeys(NamedTuple):
    """A TLS key and its certificate with what leads to the authority, both PEM."""

    key_pem: bytes
    certificate_pem: bytes


def write_helper_file(path: Path, content: HelperRequest | HelperCertificates) -> None:
    """Write a request or certificates as JSON; OSError if the folder cannot be written."""
    encoded = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
    write_atomically(path, encoded, mode=READABLE)


def read_helper_request(path: Path) -> HelperRequest:
    """Read a request, unchecked; CertificateError if it is none, OSError as `open`."""
    try:
        return read_json(path, HelperRequest, at_most=LARGEST_RECORD_BYTES)
    except msgspec.DecodeError as error:
        raise CertificateError(f"{path} is no helper's request: {error}") from None


def read_helper_certificates(path: Path) -> HelperCertificates:
    """Read certificates, unchecked; CertificateError if it holds none, OSError as `open`."""
    try:
        return read_json(path, HelperCertificates, at_most=LARGEST_RECORD_BYTES)
    except msgspec.DecodeError as error:
        raise CertificateError(f"{path} holds no helper's certificates: {error}") from None


def make_helper_request(
    requests: SigningRequests, *, authority: bytes, hostnames: Sequence[str]
) -> HelperRequest:
    """Return the request of a helper that trusts ``authority``, a certificate in DER."""
    return HelperRequest(
        authority_sha256=fingerprint(authority).hex(),
        hostnames=list(hostnames),
        **requests._asdict(),
    )


def certify_helper(
    authority: CertificateAuthority, request: HelperRequest, *, now: float | None = None
) -> HelperCertificates:
    """Certify a helper's keys with the authority's own key, for a year.

    Raises:
        CertificateError: If the helper trusts another authority, a request does not prove that
            the helper has the key, or the authority has ended.
        ValueError: If a host name cannot stand in a certificate.
    """
    _check_authority(request.authority_sha256, authority.certificate, "the request")
    issued_at = time.time() if now is None else now
    issued = authority.issue_all(
        SigningRequests(request.tls, request.wrapping, request.signing),
        name=HELPER_NAME,
        role="helper",
        days=authority.lasting(HELPER_DAYS, issued_at),
        hostnames=request.hostnames,
        now=issued_at,
    )
    return HelperCertificates(authority_sha256=authority.fingerprint.hex(), **issued._asdict())


def check_helper(
    given: HelperCertificates, *, authority: bytes, now: float
) -> dict[KeyUse, CertifiedKey]:
    """Return a helper's three keys after checking them at ``now``, Unix seconds.

    Raises:
        CertificateError: If the authority, a certificate in DER, did not certify them itself for a
            helper, or they are not valid now.
    """
    _check_authority(given.authority_sha256, authority, "the helper's certificates")
    return {
        use: check_helper_key(
            getattr(given.certificates, use), authority=authority, use=use, now=now
        )
        for use in KeyUse
    }


def check_helper_key(
    der: bytes, *, authority: bytes, use: KeyUse, now: float | None
) -> CertifiedKey:
    """Return one key of a helper after checking it; its dates only at ``now``, if given.

    Raises:
        CertificateError: As `check_helper`.
    """
    role: Role = "helper"
    if len(split_chain(der)) != 1:
        raise CertificateError("a helper must be certified with the authority's own key")
    if now is not None:
        return check_certificate(der, ca=authority, use=use, role=role, now=now)
    check_issuer(der, ca=authority)
    certified = read_certificate(der)
    if (certified.use, certified.role) != (use, role):
        raise CertificateError(
            f"certificate must be for {use.value} by a helper, got {certified.use.value} by a "
            f"{certified.role}"
        )
    return certified


def caller_keys(issuer: CertificateAuthority, *, now: float | None = None) -> CallerKeys:
    """Make and certify a key with which the coordinator calls a helper, good for some days.

    A coordinator's own certificate is one of a server, and TLS takes none of those from a caller.

    Raises:
        CertificateError: If the issuer has ended.
    """
    key, issued = make_tls_key(), time.time() if now is None else now
    chain = issuer.issue(
        make_signing_request(key, "coordinator", KeyUse.TLS),
        use=KeyUse.TLS,
        name="coordinator",
        role="caller",
        days=_CALLER_DAYS + issuer.lasting(_CALLER_DAYS, issued),
        now=issued - _CALLER_DAYS * 86_400,
    )
    return CallerKeys(private_key_pem(key), certificate_pem(chain))


def run_of(authority: bytes) -> bytes:
    """Return the run, 16 bytes, that an authority's certificate, DER, was made for.

    Raises:
        CertificateError: If it names none.
    """
    try:
        subject = x509.load_der_x509_certificate(authority).subject
        names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        run = bytes.fromhex(str(names[0].value).removeprefix(_RUN_PREFIX))
    except (ValueError, IndexError):
        run = b""
    if len(run) != 16:
        raise CertificateError("the authority's certificate names no run: it is no federation's")
    return run


def _check_authority(told: str, authority: bytes, what: str) -> None:
    wanted = fingerprint(authority).hex()
    if told != wanted:
        raise CertificateError(
            f"{what} must be for the authority {wanted}, got {told}; compare the fingerprints with "
            "the other side"
        )
