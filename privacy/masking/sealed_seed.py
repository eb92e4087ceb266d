"""A mask's seed in its envelope, from a device to the helper by way of the coordinator.

The envelope is that of an update (`privacy.sealing.envelope`) in a direction of its own. It is
bound to the update's run, round, slot, lease, base, plan and deadline, and in the place of a schema
to the mask's form. The header is signed and in clear: the coordinator checks it when the update
arrives, so that a device cannot spoil a sum later but by a seed that does not open.
"""

import dataclasses

from privacy.foundation.secure_source import SecureSource
from privacy.identities.certificates import CertifiedKey
from privacy.identities.party import Identity
from privacy.identities.signatures import Purpose, SignatureError, verify
from privacy.masking.keystream import SEED_BYTES
from privacy.masking.mask_form import MaskForm
from privacy.sealing.envelope import (
    BodyHeader,
    Direction,
    MessageContext,
    Opener,
    UnsealError,
    seal,
    sealed_bytes,
)
from privacy.sealing.header import (
    HEADER_BYTES,
    RSA_BLOCK_BYTES,
    SLIP_BYTES,
    parse_header,
    take_block,
)

SEALED_SEED_BYTES = sealed_bytes(SEED_BYTES)
"""Size of every sealed seed, in bytes."""


def new_seed() -> bytes:
    """Return a seed from the operating system's randomness, 32 bytes."""
    return SecureSource().bytes(SEED_BYTES)


def seed_context(update: MessageContext, form: MaskForm) -> MessageContext:
    """Return what a seed's envelope is bound to, from its update's context and its mask's form."""
    return dataclasses.replace(update, direction=Direction.MASK_SEED, schema_sha256=form.sha256)


def seal_seed(
    seed: bytes, context: MessageContext, *, device: Identity, helper: CertifiedKey
) -> bytes:
    """Return a seed sealed for the helper, `SEALED_SEED_BYTES` long.

    ``context`` is `seed_context`'s and has a deadline; ``helper`` is its wrapping key, checked.

    Raises:
        ValueError: If the seed does not have 32 bytes, or a key is for another use or too small.
    """
    if len(seed) != SEED_BYTES:
        raise ValueError(f"seed must have {SEED_BYTES} bytes, got {len(seed)}")
    message = seal(seed, context, sender=device, recipient=helper)
    return b"".join(map(bytes, message.views()))


def seed_header(sealed: bytes, sender: CertifiedKey) -> BodyHeader:
    """Return a sealed seed's header after checking that ``sender`` signed it.

    Raises:
        UnsealError: If it has another size, was signed with another key, or is no seed's header.
    """
    header = sealed[SLIP_BYTES : SLIP_BYTES + HEADER_BYTES]
    block = sealed[SLIP_BYTES + HEADER_BYTES :][:RSA_BLOCK_BYTES]
    try:
        if len(sealed) != SEALED_SEED_BYTES:
            raise ValueError("another size than a sealed seed's")
        signature = take_block(block, sender.key_bits)
        verify(sender.public_key, header, signature, purpose=Purpose.ENVELOPE)
        parsed = parse_header(header)
        if parsed.direction != Direction.MASK_SEED or parsed.payload_bytes != SEED_BYTES:
            raise ValueError("not a mask's seed")
        if parsed.sender_sha256 != sender.sha256:
            raise ValueError("another certificate of the same key")
    except (ValueError, SignatureError):
        raise UnsealError from None
    return parsed


def check_seed(sealed: bytes, context: MessageContext, sender: CertifiedKey) -> None:
    """Check, without opening it, that a sealed seed is bound to ``context``; else UnsealError."""
    if not seed_header(sealed, sender).fits(context, SEED_BYTES):
        raise UnsealError


def open_seed(
    sealed: bytes, context: MessageContext, *, helper: Identity, sender: CertifiedKey
) -> bytes:
    """Return the seed, 32 bytes; UnsealError if it does not open with the helper's keys."""
    memory = bytearray(SEED_BYTES)
    opener = Opener(context, payload_bytes=SEED_BYTES, recipient=helper, sender=sender, into=memory)
    opener.feed(sealed)
    return bytes(opener.finish())
