r"""RSA-PSS signatures, each for one stated purpose.

The signed bytes are ``b"sotto " + purpose + b"\0" + message``: a signature made for a release can
never be shown as one for an envelope, though one key signs both. The digest is SHA-256, the salt
is as long as the digest (RFC 8017 section 9.1).
"""

from enum import StrEnum

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from privacy.identities.keys import PublicKey

_PSS = padding.PSS(mgf=padding.MGF1(SHA256()), salt_length=SHA256.digest_size)


class Purpose(StrEnum):
    """The one thing a signature is for."""

    ENVELOPE = "envelope"
    RELEASE = "release"
    BUNDLE = "bundle"
    PUBLISHED_PART = "published part"
    PLAN = "plan"
    HELPER_ANSWER = "helper answer"


class SignatureError(Exception):
    """Raised when a signature was not made by this key over these bytes for this purpose."""


def sign(key: rsa.RSAPrivateKey, message: bytes, *, purpose: Purpose) -> bytes:
    """Return the signature: as many bytes as the key's modulus."""
    return key.sign(_bound(message, purpose), _PSS, SHA256())


def verify(public_key: PublicKey, message: bytes, signature: bytes, *, purpose: Purpose) -> None:
    """Check a signature made by `sign`, or raise SignatureError."""
    if not isinstance(public_key, rsa.RSAPublicKey):
        raise SignatureError("a signature must be checked with an RSA key")
    try:
        public_key.verify(signature, _bound(message, purpose), _PSS, SHA256())
    except InvalidSignature:
        raise SignatureError(f"the {purpose} was not signed by this key") from None


def _bound(message: bytes, purpose: Purpose) -> bytes:
    return b"sotto " + purpose.encode("ascii") + b"\0" + message
