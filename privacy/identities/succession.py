"""One authority follows another: the former signs a statement about the latter.

A statement is an X.509 certificate of the new authority's name and key, signed by the former one,
with an extended key usage of its own (`SUCCESSION`) and no power to sign: it can pass for nothing
else, and nothing else for it. A coordinator shows every statement there was in its handshake,
newest first, so a device follows whenever it comes back:

    new root | statement about it | root before it | statement about that one | ... | first root

Times are unix seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding

from privacy.foundation.atomic_files import READABLE, write_atomically
from privacy.identities.authority import CertificateAuthority, beginning, key_usage, moment_of
from privacy.identities.certificates import SUCCESSION, fingerprint
from privacy.identities.chains import UNREADABLE, CertificateError
from privacy.identities.keys import KeyFileError

FORMER_FILE = "former.pem"


@dataclass(frozen=True)
class FormerAuthorities:
    """The statements that a coordinator shows about the authorities before its own.

    Attributes:
        statements: Roots and statements in the order above, PEM; empty if there was no other.
        roots: The roots alone, PEM: devices that have not followed yet hold their certificates.
    """

    statements: bytes = b""
    roots: bytes = b""

    @property
    def root_certificates(self) -> tuple[bytes, ...]:
        """The former roots, DER, newest first, without the one that counts now."""
        if not self.roots:
            return ()
        roots = x509.load_pem_x509_certificates(self.roots)
        return tuple(root.public_bytes(Encoding.DER) for root in roots[1:])


def state_successor(
    former: CertificateAuthority, successor: bytes, *, now: float | None = None
) -> bytes:
    """Return the former authority's statement, DER, that ``successor`` (a root, DER) follows it."""
    root, issued = x509.load_der_x509_certificate(successor), moment_of(now)
    builder = (
        x509.CertificateBuilder()
        .subject_name(root.subject)
        .public_key(root.public_key())
        .not_valid_before(beginning(issued, None))
        .not_valid_after(datetime.fromtimestamp(former.ends_at, UTC))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(signs=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([SUCCESSION]), critical=True)
    )
    return former.sign(builder)


def successor_of(ca: bytes, shown: Sequence[bytes], *, now: float) -> bytes:
    """Return the newest authority, DER, to which statements lead from the one that is trusted.

    ``shown`` is roots and statements, DER, in the order above.

    Raises:
        CertificateError: If they lead from ``ca`` nowhere.
    """
    current, moment = ca, datetime.fromtimestamp(now, UTC)
    for root, statement in reversed(list(zip(shown[::2], shown[1::2], strict=False))):
        if _is_stated(current, root, statement, moment):
            current = root
    if current == ca:
        raise CertificateError(
            "the coordinator's certificates are not of this federation's authority, "
            f"{fingerprint(ca).hex()}, nor of one that it names as its successor"
        )
    return current


def write_former(
    folder: Path, former: Path, authority: CertificateAuthority, successor: bytes
) -> None:
    """Write into a successor's folder what leads to it, from the former authority and its folder.

    Raises:
        KeyFileError: If the former folder's file cannot be read.
        OSError: If the file cannot be written.
    """
    before = _read(former / FORMER_FILE) or [x509.load_der_x509_certificate(authority.certificate)]
    statement = state_successor(authority, successor)
    added = [x509.load_der_x509_certificate(der) for der in (successor, statement)]
    write_atomically(folder / FORMER_FILE, _pem([*added, *before]), mode=READABLE)


def read_former(folder: Path) -> FormerAuthorities:
    """Return what the authority's folder says of those before it; KeyFileError if damaged."""
    found = _read(folder / FORMER_FILE)
    return FormerAuthorities(_pem(found), _pem(found[::2]))


def _is_stated(ca: bytes, root: bytes, statement: bytes, moment: datetime) -> bool:
    """Return whether an authority named a root as its successor, by a statement valid now."""
    try:
        authority = x509.load_der_x509_certificate(ca)
        successor = x509.load_der_x509_certificate(root)
        stated = x509.load_der_x509_certificate(statement)
        stated.verify_directly_issued_by(authority)
        successor.verify_directly_issued_by(successor)
        usages = stated.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (*UNREADABLE, InvalidSignature):
        return False
    return (
        list(usages) == [SUCCESSION]
        and stated.subject == successor.subject
        and stated.public_key() == successor.public_key()
        and stated.not_valid_before_utc <= moment <= stated.not_valid_after_utc
    )


def _read(path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise KeyFileError(f"{path} cannot be read: {error}") from None


def _pem(certificates: Sequence[x509.Certificate]) -> bytes:
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)
