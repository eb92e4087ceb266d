"""The commitment of a message's signed header, which ties it to one content.

AES-GCM does not commit to its key: an attacker who knows or chooses a key can make chunks of other
content that fit the same associated data. So the header, which is signed, names the content in a
way that nobody but the sender can satisfy otherwise.

* A **downlink** is encrypted once for a cohort, and every member knows its key. It names the
  payload's digest (`privacy.sealing.chunk_digest`), which an opener compares at the end.
* An **uplink**, or a **mask's seed**, has one recipient. Its key is known to sender and recipient
alone, and never leaves
  them unwrapped; so it is enough to name the key. A body under another key is refused before its
  first chunk, and under this key only the two ends can make one. Neither end hashes the payload,
  which would cost each more than encrypting it.

The key is uniform and has 256 bits, so its digest tells nothing about it.

References:
    Grubbs, Lu and Ristenpart, "Message Franking via Committing Authenticated Encryption",
        CRYPTO 2017; Albertini et al., "How to Abuse and Fix Authenticated Encryption Without Key
        Commitment", USENIX Security 2022 (committing by a digest of the key).
"""

import hashlib

from privacy.sealing.chunk_digest import payload_digest
from privacy.sealing.header import Direction

_KEY_TAG = b"sotto content key 1\0"


def commitment_of(direction: Direction, payload: memoryview, content_key: bytes) -> bytes:
    """Return what a sender's header commits to, 32 bytes."""
    match direction:
        case Direction.DOWNLINK:
            return payload_digest(payload)
        case Direction.UPLINK | Direction.MASK_SEED:
            return key_commitment(content_key)


def key_commitment(content_key: bytes) -> bytes:
    """Return the digest that stands for a content key, 32 bytes."""
    return hashlib.sha256(_KEY_TAG + content_key).digest()
