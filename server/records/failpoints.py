"""Kill this very process at a named moment, so that tests can prove that no crash loses work."""

import os
import signal
from enum import StrEnum


class Failpoint(StrEnum):
    """The moments of a round at which a crash is tested."""

    LEASE_GIVEN = "lease_given"
    MID_CHUNK = "mid_chunk"
    BLOB_RENAMED = "blob_renamed"
    COMMITTED = "committed"
    CLOSING = "closing"
    UNMASKED = "unmasked"
    NOISED = "noised"
    RELEASE_RECORDED = "release_recorded"
    PUBLISHED = "published"
    EVALUATION_PAID = "evaluation_paid"
    # A helper's: its answer is made, and it is on the disk.
    ANSWER_MADE = "answer_made"
    ANSWER_KEPT = "answer_kept"


class Failpoints:
    """The armed moments."""

    def __init__(self, armed: str | None = None) -> None:
        """Arm one moment, ``name:N`` for the N-th time it is reached, or none.

        Raises:
            ValueError: If there is no such moment, or N is not a count from 1.
        """
        self._left: dict[Failpoint, int] = {}
        if armed is None:
            return
        name, _, count = armed.partition(":")
        if name not in list(Failpoint):
            raise ValueError(f"failpoint must be one of {', '.join(Failpoint)}, got {name!r}")
        if count and (not count.isdecimal() or int(count) < 1):
            raise ValueError(f"failpoint's count must be a number from 1, got {count!r}")
        self._left[Failpoint(name)] = int(count or 1)

    def reach(self, moment: Failpoint) -> None:
        """Die here, as by a power cut, if this moment is armed and its count is up."""
        if moment not in self._left:
            return
        self._left[moment] -= 1
        if not self._left[moment]:
            os.kill(os.getpid(), signal.SIGKILL)


UNARMED = Failpoints()
"""The failpoints of every process that is not under test."""
