"""Check who signed a release or a bundle.

The signature is over one small file that holds the digests of all others; it outlives its key's
certificate. Without the federation's authority it only says that nothing changed since somebody
signed. Cryptography, 10 MB, is loaded only for a signature: a device may trust how its bundle came.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from privacy.identities.signatures import Purpose

# The longest is RSA-4096's, 512 bytes; a certificate of such a key has some 1,500.
LARGEST_SIGNATURE_BYTES = 1 << 10
LARGEST_CERTIFICATE_BYTES = 1 << 14


class UntrustedError(ValueError):
    """Raised when a signature or its certificate is not what it must be."""


@dataclass(frozen=True, kw_only=True)
class Signer:
    """The signer of a manifest.

    Attributes:
        certificate_sha256: Hex digest of the certificate.
        is_trusted: Whether the federation's authority certified it.
    """

    name: str
    certificate_sha256: str
    is_trusted: bool

    def describe(self) -> str:
        """Say in words who signed, and how far that was checked."""
        trust = (
            "of the given authority"
            if self.is_trusted
            else "its certificate was not checked: give --authority"
        )
        return f"{self.name} ({self.certificate_sha256[:16]}…, {trust})"


def check_signature(
    message: bytes,
    signature: bytes,
    certificate: bytes,
    *,
    purpose: "Purpose",
    authority: bytes | None,
) -> Signer:
    """Check a coordinator's signature.

    Args:
        certificate: Certificate of the key, X.509 DER.
        purpose: The thing that must have been signed.
        authority: The authority's certificate, DER; None leaves the certificate unchecked.

    Raises:
        UntrustedError: If the key is no coordinator's signing key, is not the authority's, or did
            not sign the message for this purpose.
    """
    from privacy.identities.certificates import (
        CertificateError,
        KeyUse,
        check_issuer,
        read_certificate,
    )
    from privacy.identities.signatures import SignatureError, verify

    try:
        certified = read_certificate(certificate)
        if (certified.use, certified.role) != (KeyUse.SIGNING, "coordinator"):
            raise UntrustedError(
                f"the signer must hold a coordinator's signing key, got a {certified.role}'s "
                f"{certified.use.value} key"
            )
        if authority is not None:
            check_issuer(certificate, ca=authority)
        verify(certified.public_key, message, signature, purpose=purpose)
    except CertificateError as error:
        raise UntrustedError(f"the signer's {error}") from None
    except SignatureError as error:
        raise UntrustedError(str(error)) from None
    return Signer(
        name=certified.name,
        certificate_sha256=certified.sha256.hex(),
        is_trusted=authority is not None,
    )
