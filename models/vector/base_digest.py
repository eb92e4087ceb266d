"""Identify a device's starting point by one digest, whatever parts it came in. No torch.

Every sealed update is bound to it: an update trained from other shared parameters, or from another
device's generated ones, does not open.
"""

import hashlib

_TAG = b"sotto base of two parts 1\0"


def base_digest(shared_sha256: bytes, generated_sha256: bytes | None) -> bytes:
    """Return the 32-byte digest of a starting point, from the digests of its two flat parts.

    Without generated parameters it is the shared parameters' digest itself.
    """
    if generated_sha256 is None:
        return shared_sha256
    return hashlib.sha256(_TAG + shared_sha256 + generated_sha256).digest()
