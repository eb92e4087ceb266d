"""Certified keys: one federation, one authority, and one use for each key.

A party has three keys, each with its own certificate: TLS, wrapping (others seal to it) and signing
(it signs headers and releases). The extended key usage, critical, says use and role together, so a
device's certificate never passes for the coordinator's, nor a signing certificate for a wrapping
one. Each key proves that its owner has it: its request (PKCS#10) is signed with it.

Clocks: certificates are dated back by `CLOCK_TOLERANCE`, so that a party whose clock is up to a
day slow can use one at once. At the far end no tolerance is needed: a certificate is renewed at
two thirds of its life, thirty days before the end of a ninety-day one. Times are unix seconds.

The bytes of a party's certificate are its chain: the DER of the certificate itself and, where an
issuing key signed it, the DER of that key's certificate behind it (`privacy.identities.chains`).

References:
    RFC 5280 (X.509). The private identifiers lie below 2.25.<UUID>, the arc that ITU-T X.667
    gives to everyone.
"""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from ipaddress import ip_address
from typing import Literal, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from privacy.identities.chains import (
    UNREADABLE,
    check_links,
    encoded_chain,
    parsed_chain,
    split_chain,
)

# Most callers know certificates alone, so the error is theirs to import from here too.
from privacy.identities.chains import CertificateError as CertificateError  # noqa: PLC0414
from privacy.identities.keys import RSA_BITS, PublicKey

CLOCK_TOLERANCE = timedelta(hours=25)

Role = Literal["device", "coordinator", "helper", "caller"]
"""Parties; a caller is the coordinator where it calls a helper, with a TLS key alone."""

_ARC = "2.25.215348917720984305717432880291034811273"


class KeyUse(StrEnum):
    """The one thing a key is for."""

    TLS = "tls"
    WRAPPING = "wrapping"
    SIGNING = "signing"


# TLS libraries want a usage of theirs; what tells one party from another then stands beside it.
PROFILES: dict[tuple[KeyUse, Role], tuple[ObjectIdentifier, ...]] = {
    (KeyUse.TLS, "device"): (ExtendedKeyUsageOID.CLIENT_AUTH,),
    (KeyUse.TLS, "coordinator"): (ExtendedKeyUsageOID.SERVER_AUTH,),
    (KeyUse.WRAPPING, "device"): (ObjectIdentifier(f"{_ARC}.1"),),
    (KeyUse.WRAPPING, "coordinator"): (ObjectIdentifier(f"{_ARC}.2"),),
    (KeyUse.SIGNING, "device"): (ObjectIdentifier(f"{_ARC}.3"),),
    (KeyUse.SIGNING, "coordinator"): (ObjectIdentifier(f"{_ARC}.4"),),
    (KeyUse.TLS, "helper"): (ExtendedKeyUsageOID.SERVER_AUTH, ObjectIdentifier(f"{_ARC}.6")),
    (KeyUse.WRAPPING, "helper"): (ObjectIdentifier(f"{_ARC}.7"),),
    (KeyUse.SIGNING, "helper"): (ObjectIdentifier(f"{_ARC}.8"),),
    (KeyUse.TLS, "caller"): (ExtendedKeyUsageOID.CLIENT_AUTH, ObjectIdentifier(f"{_ARC}.9")),
}

# The one thing that an authority's statement about its successor is for: no party's certificate.
SUCCESSION = ObjectIdentifier(f"{_ARC}.5")


class Certificates(NamedTuple):
    """One party's three certificates, each a chain; fields are named as `KeyUse` values."""

    tls: bytes
    wrapping: bytes
    signing: bytes


@dataclass(frozen=True, kw_only=True)
class CertifiedKey:
    """A public key with what its certificate says about it.

    Attributes:
        name: The owner's; a device's client name.
        sha256: SHA-256 of the certificate's DER, 32 bytes.
        serial: Serial number, unique for this authority.
        not_before: First second of validity, unix seconds; `CLOCK_TOLERANCE` before the issue.
        not_after: Last second of validity, unix seconds.
        issuing_not_before: The same of the issuing key's certificate; 0 where the authority itself
            signed.
        der: The certificate's chain.
    """

    name: str
    use: KeyUse
    role: Role
    sha256: bytes
    serial: int
    not_before: float
    not_after: float
    issuing_not_before: float = 0.0
    public_key: PublicKey
    der: bytes

    @property
    def key_bits(self) -> int:
        """Size of an RSA key, in bits; 0 for a TLS key."""
        return self.public_key.key_size if isinstance(self.public_key, rsa.RSAPublicKey) else 0

    @property
    def generation(self) -> tuple[float, float]:
        """Order of succession: later keys of one party, and later issuing keys, compare greater."""
        return self.issuing_not_before, self.not_before

    @property
    def renewal_due_at(self) -> float:
        """Unix seconds at which two thirds of the life, counted from the issue, are over."""
        issued = self.not_before + CLOCK_TOLERANCE.total_seconds()
        return issued + (self.not_after - issued) * 2 / 3

    def check_time(self, now: float) -> None:
        """Refuse a certificate that is not valid at ``now``; CertificateError tells why."""
        if not self.not_before <= now <= self.not_after:
            state = "expired" if now > self.not_after else "is not valid yet"
            begin, end = certificate_time(self.not_before), certificate_time(self.not_after)
            raise CertificateError(
                f"{self.use} certificate of {self.name} {state}: it is valid from {begin} to {end} "
                "and this clock says "
                f"{certificate_time(now)}; set the clock, or renew the certificate"
            )


def read_certificate(der: bytes) -> CertifiedKey:
    """Return what a certificate says, whoever issued it: trust it only after `check_certificate`.

    Raises:
        CertificateError: If the bytes are no certificate of a sotto key.
    """
    certificate, *issuing = parsed_chain(der)
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        public_key = certificate.public_key()
    except UNREADABLE:
        raise CertificateError(
            "certificate cannot be read: it must be one that sotto made"
        ) from None
    use, role = _read_profile(list(usages.value))
    if len(names) != 1:
        raise CertificateError(f"certificate must have one name, got {len(names)}")
    return CertifiedKey(
        name=str(names[0].value),
        use=use,
        role=role,
        sha256=fingerprint(split_chain(der)[0]),
        serial=certificate.serial_number,
        not_before=certificate.not_valid_before_utc.timestamp(),
        not_after=certificate.not_valid_after_utc.timestamp(),
        issuing_not_before=issuing[0].not_valid_before_utc.timestamp() if issuing else 0.0,
        public_key=check_kind(public_key, use),
        der=der,
    )


def hostnames_of(der: bytes) -> list[str]:
    """Return the names and addresses that a TLS certificate stands for; none for others."""
    certificate = parsed_chain(der)[0]
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    except UNREADABLE:
        raise CertificateError("certificate cannot be read: it must be X.509, DER") from None
    return [str(name.value) for name in names]


def check_host(der: bytes, host: str) -> None:
    """Raise CertificateError unless a TLS certificate stands for a host, IPv6 without brackets."""
    names = hostnames_of(der)
    _, _, domain = host.partition(".")
    wanted = {_comparable(host), _comparable(f"*.{domain}")}
    if not any(_comparable(name) in wanted for name in names):
        raise CertificateError(
            f"the coordinator's certificate must name {host}, got {', '.join(names) or 'no name'}; "
            "its operator gives all names to `sotto-server rotate-keys FEDERATION --hostname`"
        )


def _comparable(host: str) -> str:
    try:
        return str(ip_address(host))
    except ValueError:
        return host.removesuffix(".").casefold()


def check_certificate(
    der: bytes, *, ca: bytes, use: KeyUse, role: Role, now: float
) -> CertifiedKey:
    """Return the key of a certificate after checking everything it is trusted for; all are DER.

    Raises:
        CertificateError: If the certificate is not the authority's, is for another use or role,
            or is not valid at ``now``. Revocation is the caller's to look up, by ``sha256``.
    """
    certified = read_certificate(der)
    check_issuer(der, ca=ca, now=now)
    if (certified.use, certified.role) != (use, role):
        raise CertificateError(
            f"certificate of {certified.name} must be for {use.value} by a {role}, got "
            f"{certified.use.value} by a {certified.role}"
        )
    certified.check_time(now)
    return certified


def check_issuer(der: bytes, *, ca: bytes, now: float | None = None) -> None:
    """Raise CertificateError unless the authority, or an issuing key of its, signed a certificate.

    ``ca`` may also be the issuing key's own certificate. At ``now``, if given, that key must be
    valid; a signature over a file outlives the key.
    """
    moment = None if now is None else datetime.fromtimestamp(now, UTC)
    check_links(der, ca=ca, moment=moment)


def fingerprint(der: bytes) -> bytes:
    """Return SHA-256 of a certificate's DER, 32 bytes."""
    return hashlib.sha256(der).digest()


def certificate_pem(der: bytes) -> bytes:
    """Return a chain as PEM, as TLS libraries want it; CertificateError if it is none."""
    return b"".join(part.public_bytes(Encoding.PEM) for part in parsed_chain(der))


def certificate_der(pem: bytes) -> bytes:
    """Return the chain, DER, of a PEM file; CertificateError if it holds none."""
    try:
        return encoded_chain(x509.load_pem_x509_certificates(pem))
    except UNREADABLE:
        raise CertificateError("certificate cannot be read: it must be X.509, PEM") from None


def check_kind(public_key: object, use: KeyUse) -> PublicKey:
    """Return the key of the kind its use takes: TLS on P-256, others RSA of 3072 or 4096 bits."""
    if use is KeyUse.TLS:
        if isinstance(public_key, ec.EllipticCurvePublicKey) and isinstance(
            public_key.curve, ec.SECP256R1
        ):
            return public_key
        raise CertificateError("a tls key must be ECDSA on P-256")
    if not isinstance(public_key, rsa.RSAPublicKey):
        raise CertificateError(f"a {use.value} key must be RSA")
    if public_key.key_size not in RSA_BITS or public_key.public_numbers().e != 65537:
        raise CertificateError(
            f"a {use.value} key must have 3072 or 4096 bits and exponent 65537, got "
            f"{public_key.key_size} bits and {public_key.public_numbers().e}"
        )
    return public_key


def _read_profile(usages: list[ObjectIdentifier]) -> tuple[KeyUse, Role]:
    """Return what extended key usages stand for; they must be exactly those of one profile."""
    for profile, identifiers in PROFILES.items():
        if usages == list(identifiers):
            return profile
    raise CertificateError("certificate must be for one use that sotto knows")


def certificate_time(unix_s: float) -> str:
    """Return a time of a certificate, in UTC, as errors tell it."""
    return datetime.fromtimestamp(unix_s, UTC).isoformat(sep=" ", timespec="seconds")
