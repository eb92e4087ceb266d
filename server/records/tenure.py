"""The time for which one process may write, where several share a store and a folder.

Each time that a coordinator begins to lead, it gets the next term. A file that is not finished
carries the term in its name, so that a coordinator that was stopped and wakes up later finds none
of its own files and touches nobody else's (``docs/decisions/takeover.md``).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

_IN_NAME = re.compile(r"-t(\d{6,})(?:\.|$)")


class LeadershipLostError(RuntimeError):
    """Raised when another process leads, or may lead by now; nothing was written."""


def _for_ever() -> None:
    """Leave it at that: nobody takes over from a process that is alone."""


def _not_for_one(reason: str) -> None:
    raise LeadershipLostError(reason)


@dataclass(frozen=True)
class Tenure:
    """One process's turn to lead.

    Attributes:
        term: Number of the turn, from 1; 0 where one process alone can serve, as on SQLite.
        check: Raises ``LeadershipLostError`` if the turn is over, or may be over by the process's
            own clock. Asks nobody.
        lose: Ends the turn for a reason that the store told, and raises the same.
    """

    term: int
    check: Callable[[], None] = _for_ever
    lose: Callable[[str], None] = _not_for_one

    def named(self, name: str) -> str:
        """Return a name that no other term uses; the same one for a process that is alone."""
        return f"{name}-t{self.term:06d}" if self.term else name

    def is_before(self, name: str) -> bool:
        """Return whether a name belongs to an earlier term, or to none, while this one has one."""
        return term_in(name) < self.term

    def is_after(self, name: str) -> bool:
        """Return whether a name belongs to a later term: then it is not this process's to touch."""
        return term_in(name) > self.term


def term_in(name: str) -> int:
    """Return the term in a name that ``Tenure.named`` made; 0 if there is none."""
    found = _IN_NAME.search(name)
    return 0 if found is None else int(found[1])


ALONE = Tenure(0)
"""The turn of a process that nobody takes over from."""
