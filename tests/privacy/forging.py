"""A second implementation of the envelope, written from the layout in its docstring.

It shares no code with the first, and it lets a test sign and seal what an honest sender never
would.
"""

import hashlib
import struct
from dataclasses import dataclass, field
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.padding import AsymmetricPadding
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from privacy.identities.certificates import CertifiedKey
from privacy.identities.party import Identity
from privacy.sealing.envelope import Direction, MessageContext

MIB = 1024 * 1024
HEADER_FIELDS = {
    "magic": "8s",
    "version": "B",
    "suite": "B",
    "direction": "B",
    "nonce_prefix": "7s",
    "sender_sha256": "32s",
    "run": "16s",
    "round_number": "I",
    "slot": "I",
    "lease_nonce": "16s",
    "base_sha256": "32s",
    "schema_sha256": "32s",
    "plan_sha256": "32s",
    "commitment": "32s",
    "payload_bytes": "Q",
    "chunk_count": "I",
    "message_id": "16s",
    "deadline_ms": "Q",
}


@dataclass
class Parts:
    """Hold the parts of a message so that a test can change one of them."""

    slip: bytes
    header: bytes
    signature: bytes
    chunks: list[bytes]

    @classmethod
    def of(cls, message: bytes) -> Self:
        body = message[576 + 254 + 512 :]
        step = MIB + 16
        chunks = [body[i : i + step] for i in range(0, len(body), step)]
        return cls(message[:576], message[576:830], message[830:1342], chunks)

    def join(self) -> bytes:
        return self.slip + self.header + self.signature + b"".join(self.chunks)


def tree_digest(payload: bytes) -> bytes:
    """Hash a payload as `privacy.sealing.chunk_digest` says, one chunk after the other."""
    leaves = [payload[i : i + MIB] for i in range(0, max(1, len(payload)), MIB)]
    root = b"sotto payload tree 1\0" + len(payload).to_bytes(8, "big")
    return hashlib.sha256(root + b"".join(hashlib.sha256(x).digest() for x in leaves)).digest()


def key_digest(content_key: bytes) -> bytes:
    """Hash a content key as `privacy.sealing.commitment` says."""
    return hashlib.sha256(b"sotto content key 1\0" + content_key).digest()


@dataclass
class Forger:
    """Make messages by the layout alone, each step replaceable."""

    sender: Identity
    recipient: CertifiedKey
    context: MessageContext
    payload: bytes
    content_key: bytes = b"k" * 32
    chunk_bytes: int = MIB
    # What is encrypted, if it is not what the header describes.
    encrypted: bytes | None = None
    wrap_padding: AsymmetricPadding | None = None
    sign_padding: AsymmetricPadding = field(
        default_factory=lambda: padding.PSS(padding.MGF1(SHA256()), 32)
    )
    sign_prefix: bytes = b"sotto envelope\0"
    slip_fields: bytes | None = None

    def make(self, **overrides: Any) -> Parts:
        """Return a message whose header says ``overrides`` instead of the truth."""
        header = self._header(overrides)
        key = self.sender.signing.private_key
        assert isinstance(key, rsa.RSAPrivateKey)
        signature = key.sign(self.sign_prefix + header, self.sign_padding, SHA256())
        return self._sealed(header, signature.ljust(512, b"\0"))

    def make_below(self, signed: Parts) -> Parts:
        """Wrap this forger's key and encrypt its content below a header somebody else signed."""
        return self._sealed(signed.header, signed.signature)

    def _sealed(self, header: bytes, signature: bytes) -> Parts:
        plaintext = self.payload if self.encrypted is None else self.encrypted
        cuts = range(0, max(1, len(plaintext)), self.chunk_bytes)
        cipher = AESGCM(self.content_key)
        nonce_prefix = header[11:18]
        chunks = [
            cipher.encrypt(
                nonce_prefix + struct.pack("!IB", number, start == cuts[-1]),
                plaintext[start : start + self.chunk_bytes],
                header,
            )
            for number, start in enumerate(cuts)
        ]
        return Parts(self._slip(header), header, signature, chunks)

    def _values(self, overrides: dict[str, Any]) -> dict[str, Any]:
        honest = {
            "magic": b"SOTTOENV",
            "version": 2,
            "suite": 1,
            "direction": int(self.context.direction),
            "nonce_prefix": b"7 bytes",
            "sender_sha256": self.sender.signing.certified.sha256,
            "run": self.context.run,
            "round_number": self.context.round_number,
            "slot": self.context.slot,
            "lease_nonce": self.context.lease_nonce,
            "base_sha256": self.context.base_sha256,
            "schema_sha256": self.context.schema_sha256,
            "plan_sha256": self.context.plan_sha256,
            "commitment": self._commitment(),
            "payload_bytes": len(self.payload),
            "chunk_count": max(1, -(-len(self.payload) // MIB)),
            "message_id": b"a message's name",
            "deadline_ms": self.context.deadline_ms,
        }
        assert overrides.keys() <= honest.keys()
        return honest | overrides

    def _commitment(self) -> bytes:
        if self.context.direction is Direction.DOWNLINK:
            return tree_digest(self.payload)
        return key_digest(self.content_key)

    def _header(self, overrides: dict[str, Any]) -> bytes:
        layout = "!" + "".join(HEADER_FIELDS.values())
        return struct.pack(layout, *self._values(overrides).values())

    def _slip(self, header: bytes) -> bytes:
        public_key = self.recipient.public_key
        assert isinstance(public_key, rsa.RSAPublicKey)
        fields = self.slip_fields or slip_fields_of(self.recipient)
        label = hashlib.sha256(header + fields).digest()
        oaep = padding.OAEP(padding.MGF1(SHA256()), SHA256(), label)
        wrapped = public_key.encrypt(self.content_key, self.wrap_padding or oaep)
        return fields + wrapped.ljust(512, b"\0")


def slip_fields_of(recipient: CertifiedKey) -> bytes:
    encoded = recipient.public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return recipient.sha256 + hashlib.sha256(encoded).digest()
