"""The line for people beside each code by which a round's machine turns a message away."""

from protos.refusals import RefusalCode

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
}
"""One line for each code that the round's state machine answers."""
