"""Sealing: sign what a payload is, encrypt it once, wrap its key for each recipient."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256

from privacy.foundation.atomic_files import BytesLike
from privacy.foundation.secure_source import SecureSource
from privacy.identities.certificates import CertifiedKey, KeyUse
from privacy.identities.keys import public_key_sha256
from privacy.identities.party import Identity
from privacy.identities.signatures import Purpose
from privacy.sealing.chunk_digest import CHUNK_BYTES, chunk_count_of, chunks_of
from privacy.sealing.commitment import commitment_of
from privacy.sealing.header import (
    MAX_PAYLOAD_BYTES,
    TAG_BYTES,
    BodyHeader,
    MessageContext,
    Suite,
    chunk_nonce,
    pack_slip_fields,
    pad_block,
)


@dataclass(kw_only=True)
class SealedBody:
    """A signed header and a payload that is encrypted as it is read."""

    header: bytes
    message_id: bytes
    payload_bytes: int
    _suite: Suite
    _parsed: BodyHeader
    _signature: bytes
    _content_key: bytes = field(repr=False)
    _payload: memoryview | None = field(repr=False)

    def for_recipient(self, recipient: CertifiedKey) -> bytes:
        """Return one recipient's slip, to go before this body; ValueError for an unfit key."""
        public_key = _wrapping_key(recipient, self._suite)
        fields = pack_slip_fields(recipient.sha256, public_key_sha256(public_key))
        wrapped = public_key.encrypt(self._content_key, oaep(self.header, fields))
        return fields + pad_block(wrapped)

    def views(self) -> Iterator[memoryview]:
        """Yield header and signature, then every sealed chunk; once only.

        A view holds until the next one is asked for: every chunk is encrypted into the same memory,
        for memory that nobody has used yet costs more than encrypting does. The payload must not
        change meanwhile. There is no second pass, because encrypting changed bytes under nonces
        already used would give both away: keep what this yields. Raises ValueError if the body was
        read before.
        """
        if self._payload is None:
            raise ValueError("a sealed body can be read once; keep its chunks to send them again")
        payload, self._payload = self._payload, None
        return self._encrypted(payload)

    def _encrypted(self, payload: memoryview) -> Iterator[memoryview]:
        yield memoryview(self.header + pad_block(self._signature))
        cipher = AESGCM(self._content_key)
        prefix, count = self._parsed.nonce_prefix, self._parsed.chunk_count
        memory = memoryview(bytearray(min(CHUNK_BYTES, len(payload)) + TAG_BYTES))
        for index, chunk in enumerate(chunks_of(payload)):
            sealed = memory[: len(chunk) + TAG_BYTES]
            cipher.encrypt_into(chunk_nonce(prefix, index, count), chunk, self.header, sealed)
            yield sealed.toreadonly()


@dataclass(frozen=True, kw_only=True)
class SealedMessage:
    """A message for one recipient: its slip and the body."""

    slip: bytes
    body: SealedBody

    @property
    def message_id(self) -> bytes:
        """Identifier of the message, 16 bytes."""
        return self.body.message_id

    def views(self) -> Iterator[memoryview]:
        """Yield the message from its first byte to its last; see `SealedBody.views`."""
        return self._joined(self.body.views())

    def _joined(self, body: Iterator[memoryview]) -> Iterator[memoryview]:
        yield memoryview(b"".join((self.slip, next(body))))
        yield from body


def seal_body(
    payload: BytesLike,
    context: MessageContext,
    *,
    sender: Identity,
    suite: Suite = Suite.RSA_3072,
) -> SealedBody:
    """Sign a payload's header and make it ready for any number of recipients.

    The plaintext is read again while `SealedBody.views` is read, and must not change. The context
    has a deadline. Raises ValueError if the payload is too large, the deadline is missing, or the
    signing key is too small for the suite.
    """
    view = memoryview(payload).cast("B")
    if len(view) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"payload must have at most {MAX_PAYLOAD_BYTES} bytes, got {len(view)}")
    if context.deadline_ms is None:
        raise ValueError("deadline_ms must be given to seal a message, got None")
    source = SecureSource()
    content_key = source.bytes(32)
    parsed = BodyHeader(
        suite=suite,
        direction=context.direction,
        nonce_prefix=source.bytes(7),
        sender_sha256=sender.signing.certified.sha256,
        run=context.run,
        round_number=context.round_number,
        slot=context.slot,
        lease_nonce=context.lease_nonce,
        base_sha256=context.base_sha256,
        schema_sha256=context.schema_sha256,
        plan_sha256=context.plan_sha256,
        commitment=commitment_of(context.direction, view, content_key),
        payload_bytes=len(view),
        chunk_count=chunk_count_of(len(view)),
        message_id=source.bytes(16),
        deadline_ms=context.deadline_ms,
    )
    header = parsed.pack()
    check_key_bits(sender.signing.certified, suite)
    return SealedBody(
        header=header,
        message_id=parsed.message_id,
        payload_bytes=len(view),
        _suite=suite,
        _parsed=parsed,
        _signature=sender.sign(header, purpose=Purpose.ENVELOPE),
        _content_key=content_key,
        _payload=view,
    )


def seal(
    payload: BytesLike,
    context: MessageContext,
    *,
    sender: Identity,
    recipient: CertifiedKey,
    suite: Suite = Suite.RSA_3072,
) -> SealedMessage:
    """Seal a payload for one recipient; raises as `seal_body` and `SealedBody.for_recipient`."""
    _wrapping_key(recipient, suite)
    body = seal_body(payload, context, sender=sender, suite=suite)
    return SealedMessage(slip=body.for_recipient(recipient), body=body)


def oaep(header: bytes, slip_fields: bytes) -> padding.OAEP:
    """Return the padding that binds a wrapped key to one header and one recipient."""
    label = hashlib.sha256(header + slip_fields).digest()
    return padding.OAEP(mgf=padding.MGF1(SHA256()), algorithm=SHA256(), label=label)


def check_key_bits(certified: CertifiedKey, suite: Suite) -> None:
    """Raise ValueError unless a key is RSA and large enough for a suite."""
    key = certified.public_key
    if not isinstance(key, rsa.RSAPublicKey) or key.key_size < suite.least_key_bits:
        raise ValueError(
            f"{certified.use.value} key of {certified.name} must be RSA with at least "
            f"{suite.least_key_bits} bits"
        )


def _wrapping_key(recipient: CertifiedKey, suite: Suite) -> rsa.RSAPublicKey:
    check_key_bits(recipient, suite)
    key = recipient.public_key
    if recipient.use is not KeyUse.WRAPPING or not isinstance(key, rsa.RSAPublicKey):
        raise ValueError(
            f"recipient's key must be certified for wrapping, got one for {recipient.use.value}"
        )
    return key
