"""The codes with which a coordinator refuses a message, and the key that they travel under.

A code never changes its meaning: devices, logs and operators' scripts act on it. Both ends take it
from here, so that a code renamed at one end cannot make a device retry for ever at the other.
"""

from enum import StrEnum

CODE_KEY = "sotto-code"
"""Names the code in the trailing metadata of a refused call."""


class RefusalCode(StrEnum):
    """The stable codes, as they travel in the trailing metadata."""

    # Rounds and leases.
    LATE = "late"
    WRONG_ROUND = "wrong_round"
    NOT_IN_COHORT = "not_in_cohort"
    DUPLICATE = "duplicate"
    UNKNOWN_LEASE = "unknown_lease"
    LEASE_REASSIGNED = "lease_reassigned"
    ROUND_FULL = "round_full"
    COMMIT_RUNNING = "commit_running"
    NO_ROUND = "no_round"

    # The message itself.
    WRONG_SIZE = "wrong_size"
    WRONG_OFFSET = "wrong_offset"
    INCOMPLETE_UPLOAD = "incomplete_upload"
    # Sealed to a key that the other side no longer has, or damaged on the way.
    UNSEAL_FAILED = "unseal_failed"
    MALFORMED_UPDATE = "malformed_update"
    EXAMPLE_COUNT = "example_count"
    DISK_FULL = "disk_full"
    CHUNK_SIZE = "chunk_size"
    UPLOAD_SUPERSEDED = "upload_superseded"
    WRONG_PLAN_KIND = "wrong_plan_kind"
    COUNTS = "counts"
    UNKNOWN_PART = "unknown_part"

    # The caller, and its credentials.
    TOKEN_INVALID = "token_invalid"  # noqa: S105  # a code, not a password
    TOKEN_USED = "token_used"  # noqa: S105
    TOKEN_EXPIRED = "token_expired"  # noqa: S105
    CERTIFICATE_UNKNOWN = "certificate_unknown"
    CERTIFICATE_REVOKED = "certificate_revoked"
    CERTIFICATE_EXPIRED = "certificate_expired"
    SIGNING_REQUEST = "signing_request"
    IDENTITY_IN_USE = "identity_in_use"
    VERSION_MISMATCH = "version_mismatch"
    CLOCK_WRONG = "clock_wrong"
    MODEL_FAMILY = "model_family"
    RATE_LIMITED = "rate_limited"
    UNKNOWN_VOCABULARY = "unknown_vocabulary"
    UNKNOWN_CLIENT = "unknown_client"
    DRAINING = "draining"

    # Neither side's fault is known: nothing was decided, and the same is tried again.
    TOO_SLOW = "too_slow"
    COORDINATOR_FAILED = "coordinator_failed"
