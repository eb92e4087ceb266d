"""The entries that all manifests have in common: the pins of files, writing and reading.

A manifest is JSON and is decoded strictly, its format version first. Everything else in a bundle or
a file is believed only as far as its size and SHA-256 stand there.
"""

import hashlib
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from privacy.foundation.strict_json import decode_json

M = TypeVar("M", bound="ManifestBase")


class BundleError(ValueError):
    """Raised when a bundle cannot be written, or is not to be trusted; the text says why."""


class FileDigest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The digest of one file: hex SHA-256 and its exact size."""

    sha256: str
    size_bytes: int

    @classmethod
    def of(cls, content: bytes) -> "FileDigest":
        """Return the digest of the content."""
        return cls(sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content))


class ManifestBase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The description of something exported; each manifest adds what it exports."""

    def encode(self) -> bytes:
        """Return the manifest as indented JSON, equal for equal manifests."""
        return msgspec.json.format(msgspec.json.encode(self, order="deterministic")) + b"\n"


def decode_versioned(
    encoded: bytes, kind: type[M], *, readable: Sequence[int], what: str, older: str
) -> M:
    """Decode a manifest strictly, its format version first.

    Args:
        readable: Versions that can be read, rising.
        what: Name of the version, for the error.
        older: The name of what is too old, for the error.

    Raises:
        BundleError: If the bytes are none of such a version; says which side is older.
    """
    try:
        version = decode_json(encoded, _Versioned).format_version
    except msgspec.DecodeError as error:
        raise BundleError(f"manifest cannot be read: {error}") from None
    if version not in readable:
        late = "this sotto" if version > readable[-1] else older
        known = " or ".join(map(str, readable))
        raise BundleError(f"{what} format_version must be {known}, got {version}; {late} is older")
    try:
        return decode_json(encoded, kind)
    except msgspec.DecodeError as error:
        raise BundleError(f"manifest cannot be read: {error}") from None


class _Versioned(msgspec.Struct):
    format_version: int
