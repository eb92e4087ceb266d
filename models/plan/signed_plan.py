"""The coordinator's signature of a plan: what it asked of every device of one attempt.

A device runs no plan without it, names the plan's digest in the signed header of its update, and
keeps the last plan with the signature. So what a device was asked for, and that it did that, can be
shown to a third party by either side.
"""

import hashlib
import struct
from typing import Self

import msgspec

from privacy.foundation.strict_json import decode_json
from privacy.identities.certificates import (
    CertificateError,
    CertifiedKey,
    KeyUse,
    check_issuer,
    read_certificate,
)
from privacy.identities.party import Identity
from privacy.identities.signatures import Purpose, SignatureError, verify

_SIGNED = struct.Struct("!16sII32s")


class SignedPlanError(Exception):
    """Raised when a plan was not signed by its federation's coordinator; the text says why."""


class SignedPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plan with all that proves it: a stranger needs nothing but the authority's certificate.

    Attributes:
        run: Identifier of the run, 32 hex digits.
        attempt: Attempt at the round, from 0.
        plan: The plan's bytes as they were sent and signed.
        signature: The coordinator's, over run, round, attempt and the plan's digest.
        certificate: The coordinator's signing certificate, DER.
    """

    run: str
    round_number: int
    attempt: int
    plan: bytes
    signature: bytes
    certificate: bytes

    def encode(self) -> bytes:
        """Return it as JSON bytes."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, encoded: bytes) -> Self:
        """Return what `encode` wrote, unchecked.

        Raises:
            SignedPlanError: If the bytes are damaged.
        """
        try:
            return decode_json(encoded, cls)
        except msgspec.DecodeError as error:
            raise SignedPlanError(f"the signed plan cannot be read: {error}") from None

    @property
    def plan_sha256(self) -> bytes:
        """Return the digest of the plan, 32 bytes, as a header names it."""
        return plan_digest(self.plan)

    def check(self, authority: bytes) -> CertifiedKey:
        """Return the coordinator's key that signed; its dates, and revocation, are the caller's.

        ``authority`` is the certificate, DER, that the federation's devices trust.

        Raises:
            SignedPlanError: If it was not signed by a coordinator of that authority.
        """
        try:
            certified = read_certificate(self.certificate)
            check_issuer(self.certificate, ca=authority)
            if (certified.use, certified.role) != (KeyUse.SIGNING, "coordinator"):
                raise SignedPlanError(
                    "a plan must be signed with a coordinator's signing key, got a "
                    f"{certified.role}'s {certified.use.value} key"
                )
            message = _signed(self.run, self.round_number, self.attempt, self.plan)
            verify(certified.public_key, message, self.signature, purpose=Purpose.PLAN)
        except (CertificateError, SignatureError, ValueError) as error:
            raise SignedPlanError(f"the plan cannot be trusted: {error}") from None
        return certified


def plan_digest(plan: bytes) -> bytes:
    """Return the SHA-256 of a plan's bytes, 32 bytes."""
    return hashlib.sha256(plan).digest()


def sign_plan(plan: bytes, signer: Identity, *, run: str, round_number: int, attempt: int) -> bytes:
    """Return the coordinator's signature, one for every lease of an attempt.

    ``run`` is 32 hex digits, rounds count from 1 and attempts from 0.
    """
    return signer.sign(_signed(run, round_number, attempt, plan), purpose=Purpose.PLAN)


def _signed(run: str, round_number: int, attempt: int, plan: bytes) -> bytes:
    try:
        return _SIGNED.pack(bytes.fromhex(run), round_number, attempt, plan_digest(plan))
    except struct.error:
        raise ValueError(
            f"round {round_number} and attempt {attempt} must fit 32 bits without a sign"
        ) from None
