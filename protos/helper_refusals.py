"""The codes with which a helper refuses, each with its one line; `protos.refusals` has devices'
codes.

A code never changes its meaning: the coordinator acts on it. What is behind a refusal, the helper's
own log says.
"""

from enum import StrEnum

SLOTS_KEY = "sotto-slots-bin"
"""Names the refused slots in the trailing metadata, 4 bytes each, big-endian."""

MOST_SLOTS_NAMED = 256


class HelperCode(StrEnum):
    """The stable codes, as they travel under `protos.refusals.CODE_KEY`."""

    # The caller and its terms.
    VERSION_MISMATCH = "version_mismatch"
    CALLER_UNKNOWN = "caller_unknown"
    TERMS_MALFORMED = "terms_malformed"
    ANOTHER_RUN = "another_run"
    CLOCK_WRONG = "clock_wrong"
    DEADLINE_LONG_PAST = "deadline_long_past"
    DEADLINE_TOO_FAR = "deadline_too_far"
    HELPER_BEHIND = "helper_behind"
    STALE_ATTEMPT = "stale_attempt"
    TOO_MANY_ROUNDS = "too_many_rounds"

    # The set.
    TOO_FEW = "too_few"
    REPEATED_DEVICE = "repeated_device"
    REPEATED_LEASE = "repeated_lease"
    OTHER_SET = "other_set"
    OVERLAPPING_SET = "overlapping_set"

    # Members: the refusal names their slots, and the rest may be asked for again.
    CERTIFICATE_UNKNOWN = "certificate_unknown"
    CERTIFICATE_EXPIRED = "certificate_expired"
    GROUP_DIFFERS = "group_differs"
    FORM_DIFFERS = "form_differs"
    BASE_DIFFERS = "base_differs"
    PLAN_DIFFERS = "plan_differs"
    LEASE_DIFFERS = "lease_differs"
    SEED_UNUSABLE = "seed_unusable"
    REPEATED_SEED = "repeated_seed"

    # Nothing was decided, and the same is asked again.
    DISK_FULL = "disk_full"
    TOO_SLOW = "too_slow"
    HELPER_FAILED = "helper_failed"

    # Said by the coordinator to itself, of an answer that does not fit what it asked.
    ANSWER_INVALID = "answer_invalid"


LINES: dict[HelperCode, str] = {
    HelperCode.VERSION_MISMATCH: "coordinator and helper speak different versions; "
    "update the older",
    HelperCode.CALLER_UNKNOWN: "only this federation's coordinator may ask",
    HelperCode.TERMS_MALFORMED: "the terms of a sum must come first, whole and within their bounds",
    HelperCode.ANOTHER_RUN: "this helper serves another run",
    HelperCode.CLOCK_WRONG: "the clocks of coordinator and helper are more than a day "
    "apart; set them",
    HelperCode.DEADLINE_LONG_PAST: "the round's deadline is more than a day past; try the "
    "round again",
    HelperCode.DEADLINE_TOO_FAR: "the round's deadline is further ahead than a masked "
    "round may be long",
    HelperCode.HELPER_BEHIND: "this helper's list lacks an answer that it gave; its owner has to "
    "bring it up to date",
    HelperCode.STALE_ATTEMPT: "a newer attempt was answered already",
    HelperCode.TOO_MANY_ROUNDS: "this helper answers no more rounds today",
    HelperCode.TOO_FEW: "the set has fewer devices than this helper's owner or the plan asks for",
    HelperCode.REPEATED_DEVICE: "a device is in the set twice",
    HelperCode.REPEATED_LEASE: "a lease or slot is in the set twice",
    HelperCode.OTHER_SET: "this group was answered for another set",
    HelperCode.OVERLAPPING_SET: "a lease or device of the set was answered in another set",
    HelperCode.CERTIFICATE_UNKNOWN: "a certificate is not of a device of this federation",
    HelperCode.CERTIFICATE_EXPIRED: "a device's certificate is not valid now",
    HelperCode.GROUP_DIFFERS: "a slot is of another group",
    HelperCode.FORM_DIFFERS: "a seed is for another attempt, length, width or number of groups",
    HelperCode.BASE_DIFFERS: "a seed is bound to other parameters",
    HelperCode.PLAN_DIFFERS: "a seed is bound to another plan",
    HelperCode.LEASE_DIFFERS: "a seed is bound to another run, round, lease or deadline",
    HelperCode.SEED_UNUSABLE: "a seed cannot be opened",
    HelperCode.REPEATED_SEED: "a seed was used before",
    HelperCode.DISK_FULL: "the helper's disk is full; ask again later",
    HelperCode.TOO_SLOW: "nothing came or went for too long; ask again",
    HelperCode.HELPER_FAILED: "the helper failed; its log says where",
    HelperCode.ANSWER_INVALID: "the helper's answer does not fit the question or its own list",
}

ASK_AGAIN = frozenset({HelperCode.DISK_FULL, HelperCode.TOO_SLOW, HelperCode.HELPER_FAILED})
"""Codes after which the same question is asked again."""
