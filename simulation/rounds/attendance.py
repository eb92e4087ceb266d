"""A simulated round from opening to close: devices check in, and those present commit.

No time passes: a round ends with the last commit if all are present, otherwise at its deadline.
"""

from collections.abc import Sequence
from contextlib import suppress

from server.machine.answers import Abort, Close, LeaseGiven
from server.machine.cohort import CohortOverflowError
from server.machine.rounds import RoundMachine
from simulation.rounds.participation import SeededSource

_OPENED_AT = 0.0


class SimulationError(RuntimeError):
    """Raised when a run cannot go on; the text says at which round and why."""


def next_order(
    machine: RoundMachine,
    source: SeededSource,
    names: Sequence[str],
    *,
    everybody: Sequence[str],
    absence_rate: float,
) -> Close | Abort | None:
    """Open the next round and return how it ends; None if the population is too small.

    Args:
        source: Draws the order of arrival, absences and message identifiers.
        names: Clients that may take part.
        everybody: Every client, in the order of the data.
        absence_rate: Chance that a client with a lease never commits.

    Raises:
        PopulationTooLargeError: If more are enrolled than the settings allow.
        SimulationError: If the round does not end at its deadline.
    """
    if not _open(machine, names):
        return None
    for name, nonce, message in _leases(machine, source, everybody, absence_rate):
        machine.commit(name, nonce, message, _OPENED_AT)
        order = machine.tick(_OPENED_AT)
        if order is not None:
            return order
    # Every present client has committed: let the deadline come.
    order = machine.tick(machine.next_wakeup or _OPENED_AT)
    if order is None:
        raise SimulationError(f"round {machine.round_number} did not end at its deadline")
    return order


def _open(machine: RoundMachine, names: Sequence[str]) -> bool:
    """Open the round; a draw of more than its places is made again."""
    while True:
        with suppress(CohortOverflowError):
            return machine.open_round(names, _OPENED_AT)


def _leases(
    machine: RoundMachine, source: SeededSource, everybody: Sequence[str], absence_rate: float
) -> list[tuple[str, bytes, bytes]]:
    """Give leases in the order of arrival; return present clients with nonce and message."""
    members = machine.cohort.members if machine.cohort is not None else None
    arrivals = source.choose(everybody, len(everybody)) if members is None else members
    present = []
    for name in arrivals:
        answer = machine.check_in(name, _OPENED_AT)
        if isinstance(answer, LeaseGiven) and not _is_away(source, absence_rate):
            present.append((name, answer.lease.nonce, source.bytes(16)))
    return present


def _is_away(source: SeededSource, absence_rate: float) -> bool:
    return int.from_bytes(source.bytes(8), "little") / 2**64 < absence_rate
