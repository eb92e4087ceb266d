"""The federation's own authority, made once by ``sotto-server init``, which issues certificates.

The authority's key is ECDSA on P-256 and signs nothing but certificates. Its certificate is the
root that every party pins; an invite carries its fingerprint. An issuing key that it certified can
do the daily work in its place (`privacy.identities.issuing_key`). Times are unix seconds, the
clock's if absent.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from privacy.foundation.atomic_files import READABLE, write_atomically
from privacy.foundation.bounded_files import LARGEST_CERTIFICATE_BYTES, read_bounded
from privacy.identities.certificates import (
    CLOCK_TOLERANCE,
    PROFILES,
    CertificateError,
    Certificates,
    KeyUse,
    Role,
    certificate_der,
    fingerprint,
)
from privacy.identities.keys import (
    KeyFileError,
    PublicKey,
    make_private_folder,
    make_tls_key,
    public_key_sha256,
    read_private_key,
    write_private_key,
)
from privacy.identities.signing_requests import SigningRequests, read_signing_request

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 90
_KEY_FILE = "authority.key"
_CERTIFICATE_FILE = "authority.crt"


class CertificateAuthority:
    """An authority, or an issuing key in its place, that certifies the keys of one federation.

    ``certificate`` is the authority's, DER, whoever of the two signs; the fingerprint is SHA-256 of
    it, 32 bytes. ``issuing`` is the issuing key's certificate, DER; empty for the authority itself.
    """

    def __init__(
        self, key: ec.EllipticCurvePrivateKey, certificate: bytes, issuing: bytes = b""
    ) -> None:
        self._key = key
        self._parsed = x509.load_der_x509_certificate(issuing or certificate)
        self.certificate = certificate
        self.issuing = issuing
        self.fingerprint = fingerprint(certificate)

    @classmethod
    def create(
        cls, folder: Path, run: str, *, passphrase: bytes | None = None, now: float | None = None
    ) -> Self:
        """Make an authority for a run and keep it in an owner-only folder, as two PEM files.

        The run, 32 hex digits, is part of the authority's name. Raises KeyFileError if the folder
        holds an authority already, or others can read it.
        """
        make_private_folder(folder)
        if (folder / _CERTIFICATE_FILE).exists():
            raise KeyFileError(f"{folder} holds an authority already; a new one would orphan it")
        key = make_tls_key()
        certificate = _root_certificate(key, run, moment_of(now))
        write_private_key(folder / _KEY_FILE, key, passphrase)
        # Written last: a folder with a certificate is a whole one.
        write_atomically(
            folder / _CERTIFICATE_FILE, certificate.public_bytes(Encoding.PEM), mode=READABLE
        )
        return cls(key, certificate.public_bytes(Encoding.DER))

    @classmethod
    def load(
        cls, folder: Path, *, passphrase: bytes | None = None, key_file: Path | None = None
    ) -> Self:
        """Read an authority that `create` wrote; KeyFileError if a file cannot be used.

        ``key_file`` is where its key lies now; None if it is still in the folder.
        """
        key = read_private_key(key_file or folder / _KEY_FILE, passphrase)
        path = folder / _CERTIFICATE_FILE
        certificate = read_authority_certificate(folder)
        parsed = x509.load_der_x509_certificate(certificate)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or parsed.public_key() != (
            key.public_key()
        ):
            raise KeyFileError(f"{path} does not belong to {_KEY_FILE}; restore both from a backup")
        return cls(key, certificate)

    @property
    def ends_at(self) -> float:
        """Unix seconds at which the signing key's own certificate ends."""
        return self._parsed.not_valid_after_utc.timestamp()

    def lasting(self, days: float, now: float) -> float:
        """Return the days for which a certificate can be issued now: ``days``, or what is left."""
        return min(days, (self.ends_at - now) / 86_400)

    def sign(self, builder: x509.CertificateBuilder) -> bytes:
        """Return a certificate, DER, that lacks its issuer, serial number and signature."""
        key = self._key.public_key()
        completed = (
            builder.issuer_name(self._parsed.subject)
            .serial_number(x509.random_serial_number())
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key), critical=False)
        )
        return completed.sign(self._key, SHA256()).public_bytes(Encoding.DER)

    def issue(
        self,
        request: bytes,
        *,
        use: KeyUse,
        name: str,
        role: Role,
        days: float = CERTIFICATE_DAYS,
        hostnames: Iterable[str] = (),
        now: float | None = None,
        after: float | None = None,
    ) -> bytes:
        """Return a certificate's chain, DER, for the key of a signing request (PKCS#10, DER).

        The request must ask for ``use``; ``name`` replaces its label. ``hostnames`` are the host
        names and IP addresses under which a TLS client may find the coordinator. ``after`` is the
        ``not_before`` of the certificate that this one replaces: it begins later, whatever the
        clock did since.

        Raises:
            CertificateError: If the request does not prove possession of a fitting key, or the
                certificate would outlive the authority.
            ValueError: If a host name or ``name`` cannot stand in a certificate.
        """
        public_key = read_signing_request(request, use)
        issued = moment_of(now)
        expires = issued + timedelta(days=days)
        if not issued < expires <= self._parsed.not_valid_after_utc:
            issuer = "issuing key's" if self.issuing else "authority's"
            raise CertificateError(
                f"certificate must end after {issued:%Y-%m-%d} and by the {issuer} end, "
                f"{self._parsed.not_valid_after_utc:%Y-%m-%d}, got {expires:%Y-%m-%d}"
            )
        builder = _leaf(public_key, use, role, name)
        builder = builder.not_valid_before(beginning(issued, after)).not_valid_after(expires)
        alternatives = [_alternative_name(hostname) for hostname in hostnames]
        if alternatives:
            builder = builder.add_extension(
                x509.SubjectAlternativeName(alternatives), critical=False
            )
        return self.sign(builder) + self.issuing

    def issue_all(
        self,
        requests: SigningRequests,
        *,
        name: str,
        role: Role,
        days: float = CERTIFICATE_DAYS,
        hostnames: Iterable[str] = (),
        now: float | None = None,
        after: float | None = None,
    ) -> Certificates:
        """Return certificates for a party's three keys; host names go into the TLS one.

        The other arguments are those of `issue`.

        Raises:
            CertificateError: As `issue`, or if one key is asked to serve two uses.
            ValueError: As `issue`.
        """
        keys = {
            public_key_sha256(read_signing_request(getattr(requests, use), use)) for use in KeyUse
        }
        if len(keys) != len(KeyUse):
            raise CertificateError("tls, wrapping and signing keys must be three different keys")
        issued = {
            use.value: self.issue(
                getattr(requests, use),
                use=use,
                name=name,
                role=role,
                days=days,
                hostnames=hostnames if use is KeyUse.TLS else (),
                now=now,
                after=after,
            )
            for use in KeyUse
        }
        return Certificates(**issued)


def read_authority_certificate(folder: Path) -> bytes:
    """Return the authority's certificate, DER, whether or not its key lies there too."""
    path = folder / _CERTIFICATE_FILE
    try:
        return certificate_der(read_bounded(path, LARGEST_CERTIFICATE_BYTES))
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}") from None
    except CertificateError as error:
        raise KeyFileError(f"{path}: {error}") from None


def beginning(issued: datetime, after: float | None) -> datetime:
    """Return when a certificate begins: dated back, and later than the one it replaces.

    ``after`` is that one's ``not_before``. If it lies ahead of the clock, nobody has accepted it.
    """
    begins = issued - CLOCK_TOLERANCE
    if after is None:
        return begins
    later = datetime.fromtimestamp(after, UTC) + timedelta(seconds=1)
    return max(begins, later) if later <= issued else begins


def _leaf(public_key: PublicKey, use: KeyUse, role: Role, name: str) -> x509.CertificateBuilder:
    """Return a party's certificate that lacks its dates and its issuer."""
    wraps = use is KeyUse.WRAPPING
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .public_key(public_key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(signs=not wraps, wraps=wraps), critical=True)
        .add_extension(x509.ExtendedKeyUsage(PROFILES[use, role]), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _root_certificate(
    key: ec.EllipticCurvePrivateKey, run: str, issued: datetime
) -> x509.Certificate:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "sotto"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"sotto federation {run}"),
        ]
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(issued - CLOCK_TOLERANCE)
        .not_valid_after(issued + timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
        .add_extension(key_usage(certifies=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, SHA256())
    )


def key_usage(
    *, signs: bool = False, wraps: bool = False, certifies: bool = False
) -> x509.KeyUsage:
    """Return the key usage of a party's certificate, or of one that signs certificates."""
    return x509.KeyUsage(
        digital_signature=signs,
        key_encipherment=wraps,
        key_cert_sign=certifies,
        crl_sign=certifies,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_name(hostname: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(hostname))
    except ValueError:
        return x509.DNSName(hostname)


def moment_of(now: float | None) -> datetime:
    """Return a time in unix seconds, or the clock's, as a moment."""
    return datetime.now(UTC) if now is None else datetime.fromtimestamp(now, UTC)
