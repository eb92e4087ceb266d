"""Name what a device started from by one digest, whatever parts it came in.

Every sealed update is bound to it: one that was trained from other shared parameters, or from
another device's generated ones, does not open. No torch: both ends of the wire compute it.
"""

import hashlib

_TAG = b"sotto base of two parts 1\0"


def base_digest(shared_sha256: bytes, generated_sha256: bytes | None) -> bytes:
    """Return the digest of a device's starting point, 32 bytes.

    Args:
        shared_sha256: Digest of the flat shared parameters, 32 bytes.
        generated_sha256: Digest of the flat generated ones, 32 bytes; None where there are none,
            and the starting point is the shared parameters alone.
    """
    if generated_sha256 is None:
        return shared_sha256
    return hashlib.sha256(_TAG + shared_sha256 + generated_sha256).digest()
