"""The envelope: parameters sealed so that nobody on the way can read or change them.

A message is, in this order::

    slip        576 bytes   recipient's certificate hash and key id, wrapped content key
    body header 254 bytes   what the message is (`privacy.sealing.header`), opaque until verified
    signature   512 bytes   RSA-PSS-SHA256 of the header by the sender's signing key
    chunks                  AES-256-GCM STREAM, 1 MiB of plaintext and a 16-byte tag each

RSA cannot carry a model, so RSA wraps a fresh 256-bit content key (OAEP-SHA256) and AES carries
the rest. The associated data of every chunk is the header as received, and the OAEP label is
SHA-256(header | slip fields): neither a chunk nor a slip fits another message. A body is encrypted
once for a whole cohort; each member gets its own slip. The signed header commits to the content
(`privacy.sealing.commitment`).

Speed: encrypting runs at some 10 GB/s and hashing at 2, so only the downlink is hashed, on two
threads: one chunk while the next is under way. Chunks are decrypted straight into the payload's
place.

This module is the envelope's public face; `privacy.sealing.header`, `privacy.sealing.seal` and
`privacy.sealing.unseal` hold the parts.

References:
    RFC 8017 (OAEP, PSS), NIST SP 800-38D (GCM), Hoang et al., CRYPTO 2015 (STREAM), Grubbs et
    al., CRYPTO 2017 (committing encryption).
"""

from privacy.sealing.header import (
    ALLOWED_SUITES,
    NO_NONCE,
    NO_PLAN,
    BodyHeader,
    Direction,
    MessageContext,
    Suite,
    payload_bytes_of,
    sealed_bytes,
)
from privacy.sealing.seal import SealedBody, SealedMessage, seal, seal_body
from privacy.sealing.unseal import Opener, UnsealError, open_sealed

__all__ = [
    "ALLOWED_SUITES",
    "NO_NONCE",
    "NO_PLAN",
    "BodyHeader",
    "Direction",
    "MessageContext",
    "Opener",
    "SealedBody",
    "SealedMessage",
    "Suite",
    "UnsealError",
    "open_sealed",
    "payload_bytes_of",
    "seal",
    "seal_body",
    "sealed_bytes",
]
