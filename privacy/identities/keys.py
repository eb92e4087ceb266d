"""Private keys, in files that only their owner can read.

Wrapping and signing keys are RSA (3072 bits, or 4096). The TLS key is ECDSA on P-256: it never
meets the envelope, TLS 1.3 needs no RSA, and a handshake signs some twenty times faster with it
than with RSA-3072 at the same strength (128 bits, NIST SP 800-57 part 1, table 2).

Files are PKCS#8 PEM, mode 0600, in folders of mode 0700, encrypted if a passphrase is given. A
file or folder that others can read is refused, not repaired: they may have read it.
"""

import hashlib
import os
import stat
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from privacy.foundation.atomic_files import write_atomically
from privacy.foundation.bounded_files import read_bounded

RSA_BITS = (3072, 4096)

# A key of 4096 bits, encrypted, has 3.5 kB.
_LARGEST_KEY_FILE_BYTES = 64 << 10

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey


class KeyFileError(Exception):
    """Raised when a key file cannot be used; the text says which and what to do."""


def make_rsa_key(bits: int = 3072) -> rsa.RSAPrivateKey:
    """Make a key of 3072 or 4096 bits for wrapping or for signing; takes 0.1 to 1 second."""
    if bits not in RSA_BITS:
        raise ValueError(f"bits must be 3072 or 4096, got {bits}")
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def make_tls_key() -> ec.EllipticCurvePrivateKey:
    """Make a key for TLS: ECDSA on P-256."""
    return ec.generate_private_key(ec.SECP256R1())


def public_key_sha256(public_key: PublicKey) -> bytes:
    """Return the key id: SHA-256 of the DER SubjectPublicKeyInfo, 32 bytes."""
    encoded = public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(encoded).digest()


def private_key_pem(key: PrivateKey, passphrase: bytes | None = None) -> bytes:
    """Return the key as PKCS#8 PEM, encrypted if a passphrase is given."""
    encryption: KeySerializationEncryption = NoEncryption()
    if passphrase is not None:
        encryption = BestAvailableEncryption(passphrase)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def write_private_key(path: Path, key: PrivateKey, passphrase: bytes | None = None) -> None:
    """Write a key file atomically, readable by its owner only; no empty passphrase."""
    write_atomically(path, private_key_pem(key, passphrase))


def read_private_key(path: Path, passphrase: bytes | None = None) -> PrivateKey:
    """Read a key file that only its owner can read; KeyFileError says what to do."""
    try:
        check_owner_only(path)
        encoded = read_bounded(path, _LARGEST_KEY_FILE_BYTES)
    except OSError as error:
        raise KeyFileError(f"key file {path} cannot be read: {error.strerror}") from None
    try:
        # The library's own check tests p and q for primality again, 0.15 s a key; a device reads
        # its keys every round. That they belong together is checked below instead.
        key = load_pem_private_key(encoded, passphrase, unsafe_skip_rsa_key_validation=True)
    except TypeError:
        if passphrase is None:
            told = "is encrypted: give passphrase with --passphrase-file"
        else:
            told = "is not encrypted: give no passphrase"
        raise KeyFileError(f"key file {path} {told}") from None
    except (ValueError, UnsupportedAlgorithm):
        raise KeyFileError(f"key file {path} is damaged, or the passphrase is wrong") from None
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise KeyFileError(f"key file {path} must hold an RSA or P-256 key")
    if isinstance(key, rsa.RSAPrivateKey) and not _is_consistent(key):
        raise KeyFileError(f"key file {path} is damaged: restore it from a backup")
    return key


def read_passphrase(path: Path) -> bytes:
    """Read the first line of an owner-only file, without its line end; KeyFileError if empty."""
    try:
        check_owner_only(path)
        passphrase = read_bounded(path, _LARGEST_KEY_FILE_BYTES).partition(b"\n")[0].rstrip(b"\r")
    except OSError as error:
        raise KeyFileError(f"passphrase file {path} cannot be read: {error.strerror}") from None
    if not passphrase:
        raise KeyFileError(f"passphrase file {path} must hold the passphrase in its first line")
    return passphrase


def make_private_folder(folder: Path) -> None:
    """Make a folder and its missing parents, or check that only its owner can enter it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_owner_only(folder)
    except OSError as error:
        raise KeyFileError(f"folder {folder} cannot be made: {error.strerror}") from None


def check_owner_only(path: Path) -> None:
    """Check that a file or folder is this user's alone, or raise KeyFileError."""
    status = path.stat()
    others = stat.S_IMODE(status.st_mode) & 0o077
    if others:
        wanted = "700" if stat.S_ISDIR(status.st_mode) else "600"
        raise KeyFileError(
            f"{path} must be readable by its owner only, but its mode is "
            f"{stat.S_IMODE(status.st_mode):04o}; run: chmod {wanted} {path}, and make new keys if "
            "others may have read it"
        )
    if status.st_uid not in (os.geteuid(), 0):
        raise KeyFileError(f"{path} belongs to user {status.st_uid}; it must belong to this user")


def _is_consistent(key: rsa.RSAPrivateKey) -> bool:
    """Return whether the parts of an RSA key belong together (RFC 8017 section 3.2).

    A damaged part could make a signature that gives the key away (Boneh, DeMillo and Lipton,
    EUROCRYPT 1997).
    """
    parts = key.private_numbers()
    exponent = parts.public_numbers.e
    return (
        parts.p > 1
        and parts.q > 1
        and parts.p * parts.q == parts.public_numbers.n
        and parts.d % (parts.p - 1) == parts.dmp1
        and parts.d % (parts.q - 1) == parts.dmq1
        and exponent * parts.dmp1 % (parts.p - 1) == 1
        and exponent * parts.dmq1 % (parts.q - 1) == 1
        and parts.iqmp * parts.q % parts.p == 1
    )
