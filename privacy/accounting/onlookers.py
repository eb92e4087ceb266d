"""Those against whom a guarantee may hold, and what each of them sees of an event.

``readers`` see released models and figures. The ``coordinator`` also sees what devices send to it:
clipped updates where it draws the noise itself, noised ones under ``local``, and under ``masked``
the noised sum of every attempt that it unmasks.

A helper that joins the coordinator is no onlooker here: nothing counts what both together see.
"""

import math
from typing import Literal, NamedTuple

from privacy.accounting.events import (
    LocalRelease,
    MaskedAttempt,
    MaskedRelease,
    PrivacyEvent,
)

Onlooker = Literal["readers", "coordinator"]


class Epsilons(NamedTuple):
    """ε at one δ of the same events against each onlooker; infinite where nothing is promised."""

    readers: float
    coordinator: float
    delta: float

    @property
    def by_onlooker(self) -> dict[str, float]:
        """Each by its onlooker's name, without those that nothing is promised against."""
        named = {"readers": self.readers, "coordinator": self.coordinator}
        return {name: epsilon for name, epsilon in named.items() if math.isfinite(epsilon)}

    @property
    def told(self) -> str:
        """Both in words."""
        of_readers = f"epsilon is {self.readers:.4g} {AGAINST['readers']}"
        if math.isfinite(self.coordinator):
            of_coordinator = f"{self.coordinator:.4g} {AGAINST['coordinator']}"
            return f"{of_readers} and {of_coordinator}, at delta {self.delta:g}"
        return f"{of_readers} at delta {self.delta:g}; {NOT_AGAINST_COORDINATOR}"


AGAINST: dict[Onlooker, str] = {
    "readers": "against readers of releases",
    "coordinator": "against the coordinator",
}
"""The onlookers in words."""

NOT_AGAINST_COORDINATOR = (
    f"nothing is promised {AGAINST['coordinator']}, which sees updates before any noise"
)


def is_hidden(event: PrivacyEvent, onlooker: Onlooker) -> bool:
    """Return whether an event shows an onlooker nothing that another event does not count."""
    if onlooker == "coordinator":
        # A release is made from the sum that its attempt has paid for.
        return isinstance(event, MaskedRelease)
    return isinstance(event, MaskedAttempt)


def is_in_the_clear(event: PrivacyEvent, onlooker: Onlooker) -> bool:
    """Return whether an onlooker sees what an event is made from before its noise."""
    # A kind of event that is added later is in the clear until it is named here.
    noised_by_devices = LocalRelease | MaskedAttempt | MaskedRelease
    return onlooker == "coordinator" and not isinstance(event, noised_by_devices)
