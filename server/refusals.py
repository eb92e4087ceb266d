"""Name every reason for which the coordinator turns a message away.

A refusal changes no state, and its code never changes its meaning: devices, logs and operators'
scripts act on the code and show the text beside it.
"""

from enum import StrEnum


class RefusalCode(StrEnum):
    """Hold the stable codes, as they travel in the trailing metadata ``sotto-code``."""

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
    STALE = "stale"
    BUFFER_CLOSED = "buffer_closed"

    # The message itself.
    WRONG_SIZE = "wrong_size"
    WRONG_OFFSET = "wrong_offset"
    INCOMPLETE_UPLOAD = "incomplete_upload"
    UNSEAL_FAILED = "unseal_failed"
    MALFORMED_UPDATE = "malformed_update"
    EXAMPLE_COUNT = "example_count"
    DISK_FULL = "disk_full"
    CHUNK_SIZE = "chunk_size"
    UPLOAD_SUPERSEDED = "upload_superseded"
    WRONG_PLAN_KIND = "wrong_plan_kind"
    COUNTS = "counts"
    UNKNOWN_PART = "unknown_part"

    # Who is calling, and with what.
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


TEXTS: dict[RefusalCode, str] = {
    RefusalCode.LATE: "the round closed before this message; check in for the next one",
    RefusalCode.WRONG_ROUND: "the lease belongs to an attempt that was given up; check in again",
    RefusalCode.NOT_IN_COHORT: "this device was not drawn for the round",
    RefusalCode.DUPLICATE: "another update of this device is already committed for the round",
    RefusalCode.UNKNOWN_LEASE: "no lease of this device has that nonce; check in again",
    RefusalCode.LEASE_REASSIGNED: "the place went to another device while this one was away",
    RefusalCode.ROUND_FULL: "the round has all the updates it needs",
    RefusalCode.COMMIT_RUNNING: "this very commit is running; ask again in a second",
    RefusalCode.NO_ROUND: "no round is open",
    RefusalCode.STALE: "more releases were made since this device got its model than an update may "
    "be old (rounds.buffered.max_staleness); check in for the newest",
    RefusalCode.BUFFER_CLOSED: "a release is being made; commit again in a second",
}
"""One line for each code that the round's state machine answers."""
