"""A small secret, sealed for a store that others may read.

AES-256-GCM under a random nonce and a key of ``SEALING_KEY_BYTES`` random bytes. The secret's use
goes in as associated data, so a sealed secret opens for that use alone.
"""

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SEALING_KEY_BYTES = 32
_NONCE_BYTES = 12


class SealedSecretError(ValueError):
    """Raised when a sealed secret does not open; it does not tell why."""


def seal_secret(secret: bytes, key: bytes, use: bytes) -> bytes:
    """Return the secret, sealed; ValueError if the key has another length."""
    _check_key(key)
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, secret, use)


def open_secret(sealed: bytes, key: bytes, use: bytes) -> bytes:
    """Return what was sealed.

    Raises:
        SealedSecretError: If key or use differ, or the bytes were changed.
        ValueError: If the key has another length.
    """
    _check_key(key)
    try:
        return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], use)
    except (InvalidTag, ValueError):
        raise SealedSecretError("the sealed secret does not open with this key and use") from None


def _check_key(key: bytes) -> None:
    if len(key) != SEALING_KEY_BYTES:
        raise ValueError(f"a sealing key must have {SEALING_KEY_BYTES} bytes, got {len(key)}")
