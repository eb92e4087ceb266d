"""The form of a masked vector: what a seed is bound to beside its lease.

A seed must never mask two vectors, nor fit one of another length or modulus: then the masks of a
sum would not cancel, or the difference of two vectors would lie open. Its envelope names this
form's digest in the place of a schema's.
"""

import hashlib
import struct
from dataclasses import dataclass

from privacy.masking.packing import PACKED_BITS
from privacy.sealing.envelope import Direction, MessageContext

MOST_ELEMENTS = 1 << 28
"""Largest vector, in elements: a gibibyte at 32 bits, which a helper has to hold once."""

_TAG = b"sotto mask form 1\0"
_FIELDS = struct.Struct("!QIIII")


@dataclass(frozen=True, kw_only=True)
class MaskForm:
    """The vector that a mask fits, and the attempt that it is for.

    Attributes:
        element_count: Elements of the masked vector, check elements included.
        bits: Width of an element; sums are modulo 2^bits.
        attempt: Attempt at the round, from 0.
        groups: Groups of a cohort that are unmasked each for itself.
        least_contributors: Fewest vectors of one sum; by the plan a device's share of the noise is
            measured for so many, and in a smaller sum would be too little.

    Raises:
        ValueError: If a value is out of range.
    """

    element_count: int
    bits: int
    attempt: int
    groups: int
    least_contributors: int

    def __post_init__(self) -> None:
        if not 1 <= self.element_count <= MOST_ELEMENTS:
            raise ValueError(
                f"element_count must be >= 1 and <= {MOST_ELEMENTS}, got {self.element_count}"
            )
        if self.bits not in PACKED_BITS:
            raise ValueError(f"bits must be one of {PACKED_BITS}, got {self.bits}")
        if not 0 <= self.attempt < 1 << 32:
            raise ValueError(f"attempt must be >= 0 and < 2**32, got {self.attempt}")
        for name in ("groups", "least_contributors"):
            if not 1 <= getattr(self, name) < 1 << 32:
                raise ValueError(f"{name} must be >= 1 and < 2**32, got {getattr(self, name)}")

    @property
    def sha256(self) -> bytes:
        """Return the digest that an envelope names, 32 bytes."""
        fields = (self.element_count, self.bits, self.attempt, self.groups, self.least_contributors)
        return hashlib.sha256(_TAG + _FIELDS.pack(*fields)).digest()


@dataclass(frozen=True, kw_only=True)
class MaskTerms:
    """What every seed of one sum is bound to.

    Attributes:
        run: Identifier of the run, 16 bytes.
        round_number: Round, from 1.
        group: Group of the cohort, from 0; a member's is its slot modulo ``form.groups``.
        base_sha256: SHA-256 of the parameters that every member started from.
        plan_sha256: SHA-256 of the plan that every member answers.
        deadline_ms: When the round closes, unix milliseconds.
    """

    run: bytes
    round_number: int
    group: int
    form: MaskForm
    base_sha256: bytes
    plan_sha256: bytes
    deadline_ms: int

    def context(self, slot: int, lease_nonce: bytes) -> MessageContext:
        """Return what a member's seed must be bound to.

        Raises:
            ValueError: If a value is out of range or has another size.
        """
        return MessageContext(
            direction=Direction.MASK_SEED,
            run=self.run,
            round_number=self.round_number,
            slot=slot,
            lease_nonce=lease_nonce,
            base_sha256=self.base_sha256,
            schema_sha256=self.form.sha256,
            plan_sha256=self.plan_sha256,
            deadline_ms=self.deadline_ms,
        )
