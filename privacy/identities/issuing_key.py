"""The issuing key: certified by the authority for a year, it certifies parties in its place.

It lies with the coordinator, for enrolment and renewal, in one file beside the authority's
certificate. So the authority's key may be encrypted and taken away: it is needed once a year, for
the next issuing key, and after a theft. A federation that was founded before there were issuing
keys has none: there the authority itself signs, and its key must stay.
"""

from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from privacy.foundation.atomic_files import write_atomically
from privacy.identities.authority import (
    CertificateAuthority,
    beginning,
    key_usage,
    moment_of,
    read_authority_certificate,
)
from privacy.identities.certificates import CertificateError
from privacy.identities.keys import KeyFileError, make_tls_key, private_key_pem, read_private_key

ISSUING_DAYS = 365.0
ISSUING_FILE = "issuing.pem"


def make_issuing_key(
    folder: Path, authority: CertificateAuthority, *, now: float | None = None
) -> CertificateAuthority:
    """Make an issuing key in the authority's folder, in place of the one that lies there.

    Devices that have met the new one refuse what the former one certifies for a coordinator.

    Raises:
        CertificateError: If the authority may certify no issuing key, or has ended.
        KeyFileError: If the issuing key that lies there cannot be read.
        OSError: If the folder cannot be written.
    """
    path, issued = folder / ISSUING_FILE, moment_of(now)
    root = x509.load_der_x509_certificate(authority.certificate)
    if root.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0:
        raise CertificateError(
            "this federation's authority was made before there were issuing keys and may certify "
            "none; `sotto-server replace-authority` moves the federation to one that may"
        )
    after = None
    if path.exists():
        before = x509.load_der_x509_certificate(_read(path)[1])
        after = before.not_valid_before_utc.timestamp()
    key = make_tls_key()
    certificate = _certificate(key, authority, issued, after)
    pem = x509.load_der_x509_certificate(certificate).public_bytes(Encoding.PEM)
    write_atomically(path, private_key_pem(key) + pem)
    return CertificateAuthority(key, authority.certificate, certificate)


def load_issuer(folder: Path) -> CertificateAuthority:
    """Read what certifies parties: the issuing key or, where there is none, the authority.

    Raises:
        KeyFileError: If a file cannot be used.
    """
    path = folder / ISSUING_FILE
    if not path.exists():
        return CertificateAuthority.load(folder)
    authority = read_authority_certificate(folder)
    key, certificate = _read(path)
    return CertificateAuthority(key, authority, certificate)


def _certificate(
    key: ec.EllipticCurvePrivateKey,
    authority: CertificateAuthority,
    issued: datetime,
    after: float | None,
) -> bytes:
    root = x509.load_der_x509_certificate(authority.certificate)
    (run,) = root.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "sotto"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"{run.value!s} issuing"),
        ]
    )
    expires = min(issued + timedelta(days=ISSUING_DAYS), root.not_valid_after_utc)
    if expires <= issued:
        raise CertificateError(
            f"the authority ended at {expires:%Y-%m-%d}; `sotto-server replace-authority` makes "
            "the next one"
        )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .not_valid_before(beginning(issued, after))
        .not_valid_after(expires)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(certifies=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return authority.sign(builder)


def _read(path: Path) -> tuple[ec.EllipticCurvePrivateKey, bytes]:
    """Return an issuing key and its certificate, DER."""
    key = read_private_key(path)
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        raise KeyFileError(f"{path} holds no certificate: restore it from a backup") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or certificate.public_key() != (
        key.public_key()
    ):
        raise KeyFileError(f"key and certificate of {path} do not belong together")
    return key, certificate.public_bytes(Encoding.DER)
