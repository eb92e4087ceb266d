"""The layout of what a sealed message says about itself, in a fixed number of bytes.

All integers are big-endian. The body header is 254 bytes whatever it says, the slip and the
signature have room for a 4096-bit key, so the size of a message depends on its payload's size
alone and nothing on the wire is a length that a reader would have to believe.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from privacy.sealing.chunk_digest import CHUNK_BYTES, chunk_count_of

VERSION = 2
"""2 added ``plan_sha256``; ends of different versions part at check-in (`protos.version`)."""
MAGIC = b"SOTTOENV"
TAG_BYTES = 16
MAX_PAYLOAD_BYTES = 1 << 40
NO_NONCE = bytes(16)
"""Stands for the lease in what is sealed once for a whole cohort."""
NO_PLAN = bytes(32)
"""Stands for the plan in a downlink, which may serve more than one."""

_HEADER = struct.Struct("!8sBBB7s32s16sII16s32s32s32s32sQI16sQ")
_SLIP_FIELDS = struct.Struct("!32s32s")
# Room for one 4096-bit RSA block; a shorter one is followed by zeros.
RSA_BLOCK_BYTES = 512
HEADER_BYTES = _HEADER.size
SLIP_FIELDS_BYTES = _SLIP_FIELDS.size
SLIP_BYTES = SLIP_FIELDS_BYTES + RSA_BLOCK_BYTES
PREFIX_BYTES = SLIP_BYTES + HEADER_BYTES + RSA_BLOCK_BYTES


class Direction(IntEnum):
    """The way a message goes, so that none can be sent back as the other."""

    DOWNLINK = 1
    UPLINK = 2
    MASK_SEED = 3


class Suite(IntEnum):
    """The algorithms of a message: RSA-OAEP-SHA256, RSA-PSS-SHA256, AES-256-GCM STREAM.

    The two suites differ in the least size of both RSA keys. A receiver lists what it accepts;
    nothing is negotiated.
    """

    RSA_3072 = 1
    RSA_4096 = 2

    @property
    def least_key_bits(self) -> int:
        """Smallest modulus of a wrapping or signing key under this suite."""
        return 3072 if self is Suite.RSA_3072 else 4096


ALLOWED_SUITES = frozenset(Suite)


@dataclass(frozen=True, kw_only=True)
class MessageContext:
    """The round, slot and lease that a message belongs to: sealed with it, and insisted on.

    Attributes:
        direction: Which way it goes; a mask's seed goes to the helper, whoever carries it.
        run: Identifier of the run, 16 bytes.
        round_number: Round, from 1.
        slot: The client's slot; 0 in a downlink that is one body for the whole cohort.
        lease_nonce: The lease, 16 bytes; ``NO_NONCE`` in such a downlink.
        base_sha256: SHA-256 of what the sender of an update started from; in a downlink, of the
            flat parameters that the whole cohort starts from.
        schema_sha256: SHA-256 of the schema.
        plan_sha256: SHA-256 of the plan's bytes, as they were signed, that an update answers;
            ``NO_PLAN`` in a downlink.
        deadline_ms: When the round closes, unix milliseconds. An opener may pass None: it then
            learns the deadline from the verified header.
    """

    direction: Direction
    run: bytes
    round_number: int
    slot: int
    lease_nonce: bytes
    base_sha256: bytes
    schema_sha256: bytes
    plan_sha256: bytes = NO_PLAN
    deadline_ms: int | None

    def __post_init__(self) -> None:
        sizes = {"run": 16, "lease_nonce": 16}
        sizes |= {"base_sha256": 32, "schema_sha256": 32, "plan_sha256": 32}
        for name, size in sizes.items():
            if len(getattr(self, name)) != size:
                raise ValueError(f"{name} must have {size} bytes, got {len(getattr(self, name))}")
        if not 1 <= self.round_number < 1 << 32:
            raise ValueError(f"round_number must be >= 1 and < 2**32, got {self.round_number}")
        if not 0 <= self.slot < 1 << 32:
            raise ValueError(f"slot must be >= 0 and < 2**32, got {self.slot}")
        if self.deadline_ms is not None and not 0 <= self.deadline_ms < 1 << 64:
            raise ValueError(f"deadline_ms must be >= 0 and < 2**64, got {self.deadline_ms}")


class BodyHeader(NamedTuple):
    """The fields of a body header in wire order; see `MessageContext` for most of them.

    Attributes:
        nonce_prefix: First 7 bytes of every chunk's nonce.
        sender_sha256: SHA-256 of the sender's signing certificate.
        commitment: Ties the header to one content; see `privacy.sealing.commitment`.
        chunk_count: Number of chunks, redundant with ``payload_bytes`` and checked against it.
        message_id: 16 random bytes, by which a replay is told.
    """

    suite: int
    direction: int
    nonce_prefix: bytes
    sender_sha256: bytes
    run: bytes
    round_number: int
    slot: int
    lease_nonce: bytes
    base_sha256: bytes
    schema_sha256: bytes
    plan_sha256: bytes
    commitment: bytes
    payload_bytes: int
    chunk_count: int
    message_id: bytes
    deadline_ms: int

    def pack(self) -> bytes:
        """Return the header as `HEADER_BYTES` bytes."""
        return _HEADER.pack(MAGIC, VERSION, *self)

    def fits(self, expected: MessageContext, payload_bytes: int) -> bool:
        """Return whether every field that a receiver knows beforehand is as it must be."""
        known = {name: getattr(expected, name) for name in expected.__dataclass_fields__}
        known |= {"payload_bytes": payload_bytes, "chunk_count": chunk_count_of(payload_bytes)}
        if expected.deadline_ms is None:
            del known["deadline_ms"]
        return all(getattr(self, name) == value for name, value in known.items())


def parse_header(header: bytes) -> BodyHeader:
    """Read a header whose signature has been verified; ValueError for another format or version."""
    try:
        magic, version, *fields = _HEADER.unpack(header)
    except struct.error as error:
        raise ValueError(f"header cannot be read: {error}") from None
    if (magic, version) != (MAGIC, VERSION):
        raise ValueError("header is of another format or version")
    return BodyHeader(*fields)


def pack_slip_fields(recipient_sha256: bytes, key_id: bytes) -> bytes:
    """Return what a slip says in clear: the recipient's wrapping certificate and key."""
    return _SLIP_FIELDS.pack(recipient_sha256, key_id)


def pad_block(block: bytes) -> bytes:
    """Return an RSA block filled up with zeros to `RSA_BLOCK_BYTES`."""
    return block.ljust(RSA_BLOCK_BYTES, b"\0")


def take_block(padded: bytes, key_bits: int) -> bytes:
    """Return an RSA block without its filling, or ValueError if that is not all zeros."""
    size = key_bits // 8
    if any(padded[size:]):
        raise ValueError("block must be filled up with zeros")
    return padded[:size]


def chunk_nonce(prefix: bytes, index: int, chunk_count: int) -> bytes:
    """Return a chunk's 12-byte nonce: 7 random bytes, 4-byte counter, final flag.

    With the counter no chunk can be moved, with the flag none can be the last but the last
    (STREAM: Hoang, Reyhanitabar, Rogaway and Vizár, CRYPTO 2015).
    """
    return prefix + struct.pack("!IB", index, index == chunk_count - 1)


def sealed_bytes(payload_bytes: int) -> int:
    """Return the exact size of a sealed message, in bytes, from its payload's."""
    return PREFIX_BYTES + payload_bytes + TAG_BYTES * chunk_count_of(payload_bytes)


def payload_bytes_of(sealed: int) -> int | None:
    """Return a payload's size from its sealed message's; None if no message has that size."""
    rest = sealed - PREFIX_BYTES
    payload = rest - TAG_BYTES * -(-rest // (CHUNK_BYTES + TAG_BYTES))
    return payload if payload >= 0 and sealed_bytes(payload) == sealed else None
