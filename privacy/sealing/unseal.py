"""Opening a sealed message as it arrives, without a word about why one does not open."""

import hmac
from collections.abc import Iterable
from io import RawIOBase
from typing import NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from privacy.foundation.atomic_files import BytesLike
from privacy.foundation.memory_pool import fresh_memory
from privacy.identities.certificates import CertifiedKey, KeyUse
from privacy.identities.keys import public_key_sha256
from privacy.identities.party import Identity, KeyPair, rsa_key
from privacy.identities.signatures import Purpose, SignatureError, verify
from privacy.sealing.chunk_digest import CHUNK_BYTES, TreeDigest, chunk_count_of
from privacy.sealing.commitment import key_commitment
from privacy.sealing.header import (
    ALLOWED_SUITES,
    HEADER_BYTES,
    MAX_PAYLOAD_BYTES,
    PREFIX_BYTES,
    SLIP_BYTES,
    SLIP_FIELDS_BYTES,
    TAG_BYTES,
    BodyHeader,
    Direction,
    MessageContext,
    Suite,
    chunk_nonce,
    pack_slip_fields,
    parse_header,
    take_block,
)
from privacy.sealing.seal import check_key_bits, oaep


class UnsealError(Exception):
    """Raised when a message does not open; its text is always the same."""

    def __init__(self) -> None:
        super().__init__("sealed message could not be opened")


class Opener:
    """One message, opened from bytes that come in pieces of any size.

    Memory is taken for the payload that is expected, before the first byte arrives: no length on
    the wire is believed. Chunks are decrypted where they are to lie; nothing can be read of them
    until `finish` has seen the whole of what the sender committed to
    (`privacy.sealing.commitment`).
    """

    def __init__(
        self,
        expected: MessageContext,
        *,
        payload_bytes: int,
        recipient: Identity,
        sender: CertifiedKey,
        suites: frozenset[Suite] = ALLOWED_SUITES,
        message_id: bytes | None = None,
        into: bytearray | memoryview | None = None,
    ) -> None:
        """Prepare for one message.

        Args:
            expected: The context that the message must name.
            payload_bytes: Size the payload must have.
            recipient: The opener; its current and previous wrapping keys are tried.
            sender: Signing key the message must be signed with, already checked
                (`privacy.identities.certificates.check_certificate`) and not revoked.
            suites: Algorithms that are accepted.
            message_id: Identifier the message must have, if it was announced.
            into: Writable memory of ``payload_bytes`` bytes to decrypt into, for callers that
                open many messages of one size; its content after a failure is undefined.

        Raises:
            ValueError: If ``sender`` is not certified for signing, or sizes are out of range.
        """
        if sender.use is not KeyUse.SIGNING:
            raise ValueError(f"sender's key must be for signing, got one for {sender.use.value}")
        if not 0 <= payload_bytes <= MAX_PAYLOAD_BYTES:
            raise ValueError(
                f"payload_bytes must be >= 0 and <= {MAX_PAYLOAD_BYTES}, got {payload_bytes}"
            )
        self._payload = fresh_memory(payload_bytes) if into is None else memoryview(into).cast("B")
        if len(self._payload) != payload_bytes or self._payload.readonly:
            raise ValueError(
                f"into must be writable and have {payload_bytes} bytes, got {len(self._payload)}"
            )
        self._expected = expected
        self._recipient = recipient
        self._sender = sender
        self._suites = suites
        self._message_id = message_id
        self._chunk_count = chunk_count_of(payload_bytes)
        self._next_chunk = 0
        self._staged = memoryview(bytearray(PREFIX_BYTES))
        self._staged_bytes = 0
        self._raw_header = b""
        self._header: BodyHeader | None = None
        self._cipher: AESGCM | None = None
        self._digest: TreeDigest | None = None
        self._closed = False

    @property
    def header(self) -> BodyHeader:
        """Return the header, verified; UnsealError if it has not arrived or did not verify."""
        if self._header is None:
            raise UnsealError
        return self._header

    @property
    def message_id(self) -> bytes:
        """Return the verified header's identifier, 16 bytes, by which replays are refused."""
        return self.header.message_id

    def feed(self, data: BytesLike) -> None:
        """Take the next bytes, read before this returns; UnsealError for another message."""
        if self._closed:
            raise UnsealError
        try:
            self._take(memoryview(data).cast("B"))
        except (ValueError, InvalidTag, SignatureError):
            # Which step failed stays hidden: telling would give an attacker an oracle.
            self._fail()

    def feed_file(self, file: RawIOBase) -> None:
        """Take the rest of an unbuffered file, chunk by chunk through one small buffer.

        Mapping the file instead would cost a page fault for every few pages, ten times as much.
        Raises as `feed`.
        """
        buffer = memoryview(bytearray(max(PREFIX_BYTES, CHUNK_BYTES + TAG_BYTES)))
        while count := file.readinto(buffer[: len(self._staged) - self._staged_bytes]):
            self.feed(buffer[:count])

    def finish(self) -> memoryview:
        """Return the payload, read-only; UnsealError if it is not whole and what was signed."""
        if self._closed:
            raise UnsealError
        if self._header is None or self._next_chunk != self._chunk_count:
            self._fail()
        if self._digest is not None and not hmac.compare_digest(
            self._digest.finish(), self._header.commitment
        ):
            self._fail()
        self._closed = True
        return self._payload.toreadonly()

    def close(self) -> None:
        """Give up on the message and let go of its memory; harmless after `finish`."""
        self._closed = True
        if self._digest is not None:
            self._digest.abandon()
        self._payload = memoryview(b"")

    def _fail(self) -> NoReturn:
        self._header = None
        self.close()
        raise UnsealError from None

    def _take(self, data: memoryview) -> None:
        while data:
            if self._next_chunk == self._chunk_count:
                raise ValueError("bytes after the last chunk")
            wanted = len(self._staged)
            if self._staged_bytes == 0 and len(data) >= wanted and self._cipher is not None:
                # A whole chunk in one piece is decrypted from where it lies.
                self._decrypt(data[:wanted])
                data = data[wanted:]
                continue
            part = data[: wanted - self._staged_bytes]
            self._staged[self._staged_bytes : self._staged_bytes + len(part)] = part
            self._staged_bytes += len(part)
            data = data[len(part) :]
            if self._staged_bytes == wanted:
                self._staged_bytes = 0
                if self._cipher is None:
                    self._open_prefix(bytes(self._staged))
                else:
                    self._decrypt(self._staged)

    def _open_prefix(self, prefix: bytes) -> None:
        """Verify the header, then read it, then unwrap the content key."""
        slip = prefix[:SLIP_BYTES]
        header = prefix[SLIP_BYTES : SLIP_BYTES + HEADER_BYTES]
        signature = take_block(prefix[SLIP_BYTES + HEADER_BYTES :], self._sender.key_bits)
        verify(self._sender.public_key, header, signature, purpose=Purpose.ENVELOPE)
        parsed = parse_header(header)
        suite = Suite(parsed.suite)
        if suite not in self._suites or not parsed.fits(self._expected, len(self._payload)):
            raise ValueError("not the message expected")
        if parsed.sender_sha256 != self._sender.sha256:
            raise ValueError("another certificate of the same key")
        if self._message_id not in (None, parsed.message_id):
            raise ValueError("another message than was announced")
        check_key_bits(self._sender, suite)
        content_key = self._unwrap(slip, header, suite)
        if self._expected.direction is Direction.DOWNLINK:
            self._digest = TreeDigest(len(self._payload))
        elif not hmac.compare_digest(key_commitment(content_key), parsed.commitment):
            raise ValueError("another content key than the sender's")
        self._cipher = AESGCM(content_key)
        self._raw_header, self._header = header, parsed
        self._stage_next_chunk()

    def _unwrap(self, slip: bytes, header: bytes, suite: Suite) -> bytes:
        fields = slip[:SLIP_FIELDS_BYTES]
        pair = self._addressed(fields)
        check_key_bits(pair.certified, suite)
        wrapped = take_block(slip[SLIP_FIELDS_BYTES:], pair.certified.key_bits)
        content_key = rsa_key(pair).decrypt(wrapped, oaep(header, fields))
        if len(content_key) != 32:
            raise ValueError("content key must have 32 bytes")
        return content_key

    def _addressed(self, slip_fields: bytes) -> KeyPair:
        for pair in self._recipient.wrapping_pairs:
            key_id = public_key_sha256(pair.certified.public_key)
            if slip_fields == pack_slip_fields(pair.certified.sha256, key_id):
                return pair
        raise ValueError("sealed for another recipient")

    def _decrypt(self, sealed: memoryview) -> None:
        if self._cipher is None or self._header is None:
            raise ValueError("chunk before header")
        start = self._next_chunk * CHUNK_BYTES
        target = self._payload[start : start + len(sealed) - TAG_BYTES]
        nonce = chunk_nonce(self._header.nonce_prefix, self._next_chunk, self._chunk_count)
        self._cipher.decrypt_into(nonce, sealed, self._raw_header, target)
        if self._digest is not None:
            self._digest.add(target)
        self._next_chunk += 1
        self._stage_next_chunk()

    def _stage_next_chunk(self) -> None:
        """Make room for the next sealed chunk in case it comes in pieces."""
        left = len(self._payload) - self._next_chunk * CHUNK_BYTES
        wanted = min(CHUNK_BYTES, left) + TAG_BYTES
        if self._next_chunk < self._chunk_count and len(self._staged) != wanted:
            self._staged = memoryview(bytearray(wanted))


def open_sealed(
    pieces: Iterable[BytesLike],
    expected: MessageContext,
    *,
    payload_bytes: int,
    recipient: Identity,
    sender: CertifiedKey,
    suites: frozenset[Suite] = ALLOWED_SUITES,
) -> memoryview:
    """Open a message that is at hand in pieces and return its payload; raises as `Opener`."""
    opener = Opener(
        expected, payload_bytes=payload_bytes, recipient=recipient, sender=sender, suites=suites
    )
    try:
        for piece in pieces:
            opener.feed(piece)
        return opener.finish()
    finally:
        opener.close()
