"""Keep files together under one manifest that pins each, and one signature that covers all.

Every kind of bundle is ``manifest.json`` with the size and SHA-256 of every other file,
``manifest.sig`` over it and ``signer.der``, the certificate of the key.
"""

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from export.bundles.files import BundleFiles
from export.bundles.manifest_entries import BundleError, FileDigest
from export.bundles.signed_by import (
    LARGEST_CERTIFICATE_BYTES,
    LARGEST_SIGNATURE_BYTES,
    Signer,
    UntrustedError,
    check_signature,
)

if TYPE_CHECKING:
    from privacy.identities.party import Identity

MANIFEST_FILE = "manifest.json"
SIGNATURE_FILE = "manifest.sig"
SIGNER_FILE = "signer.der"
SIGNED_NAMES = (MANIFEST_FILE, SIGNATURE_FILE, SIGNER_FILE)
LARGEST_MANIFEST_BYTES = 1 << 20
_LARGEST = {
    MANIFEST_FILE: LARGEST_MANIFEST_BYTES,
    SIGNATURE_FILE: LARGEST_SIGNATURE_BYTES,
    SIGNER_FILE: LARGEST_CERTIFICATE_BYTES,
}


def signed_files(
    manifest: bytes, contents: Mapping[str, bytes], signed_with: "Identity | None"
) -> dict[str, bytes]:
    """Return every file of a bundle by name; a coordinator's signature then covers them all."""
    files = {MANIFEST_FILE: manifest, **contents}
    if signed_with is not None:
        from privacy.identities.signatures import Purpose

        files[SIGNATURE_FILE] = signed_with.sign(manifest, purpose=Purpose.BUNDLE)
        files[SIGNER_FILE] = signed_with.certificates.signing
    return files


def read_manifest(files: BundleFiles, *, authority: bytes | None) -> tuple[bytes, Signer | None]:
    """Return a manifest's bytes and who signed them; None if nobody did.

    Args:
        authority: Certificate of the federation's authority, DER. If given, there must be a
            signature by a coordinator that it certified.

    Raises:
        BundleError: If a file is missing or too large, or the signature does not fit.
    """
    manifest = files.read(MANIFEST_FILE, limit_bytes=LARGEST_MANIFEST_BYTES)
    if not files.names & {SIGNATURE_FILE, SIGNER_FILE}:
        if authority is None:
            return manifest, None
        raise BundleError(
            f"nobody signed it: {SIGNATURE_FILE} must be in the bundle for an authority to be held "
            "against; export it where the coordinator's keys are, or name no authority"
        )
    from privacy.identities.signatures import Purpose

    try:
        signer = check_signature(
            manifest,
            files.read(SIGNATURE_FILE, limit_bytes=LARGEST_SIGNATURE_BYTES),
            files.read(SIGNER_FILE, limit_bytes=LARGEST_CERTIFICATE_BYTES),
            purpose=Purpose.BUNDLE,
            authority=authority,
        )
    except UntrustedError as error:
        raise BundleError(str(error)) from None
    return manifest, signer


def read_signed(files: BundleFiles) -> dict[str, bytes]:
    """Return manifest and signature files as they lie there; BundleError if one is too large."""
    return {
        name: files.read(name, limit_bytes=limit)
        for name, limit in _LARGEST.items()
        if name in files.names
    }


def read_checked(files: BundleFiles, pinned: Mapping[str, FileDigest], name: str) -> bytes:
    """Return a pinned file; raise BundleError if it is missing, larger, or another."""
    content = files.read(name, limit_bytes=pinned[name].size_bytes)
    check_digest(pinned, name, content)
    return content


def check_digest(pinned: Mapping[str, FileDigest], name: str, content: bytes) -> None:
    """Raise BundleError if size or SHA-256 is not the pinned one."""
    digest = pinned[name]
    if len(content) != digest.size_bytes:
        raise BundleError(f"{name} must have {digest.size_bytes} bytes, got {len(content)}")
    found = hashlib.sha256(content).hexdigest()
    if found != digest.sha256:
        raise BundleError(f"SHA-256 of {name} must be {digest.sha256}, got {found}")
