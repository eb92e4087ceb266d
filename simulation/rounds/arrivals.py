"""Let simulated devices check in and commit, in the order and at the times at which they would.

This stands where the network and the clock are in a deployment. What is decided,
``server.machine.synchronous``
and ``server.machine.buffered`` decide; nothing is trained here, so going through a run's arrivals
again costs next to nothing.
"""

import heapq
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from server.config.rounds import RoundSettings
from server.machine.answers import Abort, Close, LeaseGiven
from server.machine.buffered import BufferedMachine, RoundsMachine
from server.machine.cohort import CohortOverflowError
from server.machine.synchronous import RoundMachine
from simulation.rounds.participation import SeededSource


class SimulationError(RuntimeError):
    """Raised when a run cannot go on; the text says at which round and why."""


class Arrivals(Protocol):
    """Bring a round from its opening to its close.

    Attributes:
        now: Seconds on the simulated clock.
        wasted: Models that devices got in the last round, or before it, for an update that came too
            late; 0 where devices take no time.
    """

    now: float
    wasted: int

    def next_order(self, names: Sequence[str]) -> Close | Abort | None:
        """Open the next round and return how it ends; None if the population is too small.

        Args:
            names: Who may take part.

        Raises:
            PopulationTooLargeError: If more are enrolled than the settings allow.
            SimulationError: If the round can never end.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Devices:
    """Say what is known of the simulated devices.

    Attributes:
        names: Every client.
        seconds: How long each takes for a round's work; absent, no time passes.
        absence_rate: Chance that one with a lease never commits.
    """

    names: Sequence[str]
    seconds: Mapping[str, float] | None = None
    absence_rate: float = 0.0

    def seconds_of(self, name: str, otherwise: float) -> float:
        """Return how long a client takes, in seconds."""
        return otherwise if self.seconds is None else self.seconds[name]

    def is_away(self, source: SeededSource) -> bool:
        """Draw whether a client with a lease never commits."""
        return int.from_bytes(source.bytes(8), "little") / 2**64 < self.absence_rate


class SynchronousArrivals:
    """Let everybody who is not away commit in the round that is open, or miss it."""

    def __init__(
        self, machine: RoundMachine, source: SeededSource, devices: Devices, *, now: float = 0.0
    ) -> None:
        """Start at some time of the simulated clock, in seconds."""
        self.now = now
        self.wasted = 0
        self._machine = machine
        self._source = source
        self._devices = devices

    def next_order(self, names: Sequence[str]) -> Close | Abort | None:
        """Open a round, let its devices come, and return how it ends."""
        self.wasted = 0
        if not self._open(names):
            return None
        machine, left = self._machine, self._at_work()
        for end, _, name, nonce, message in left:
            if end >= (machine.next_wakeup or end):
                break
            self.now = end
            machine.commit(name, nonce, message, end)
            order = machine.tick(end)
            if order is not None:
                return self._ended(order, len(left))
        # Nobody is left to wait for: let the time pass.
        self.now = machine.next_wakeup or self.now
        order = machine.tick(self.now)
        if order is None:
            raise SimulationError(f"round {machine.round_number} did not end at its deadline")
        return self._ended(order, len(left))

    def _ended(self, order: Close | Abort, leases: int) -> Close | Abort:
        if self._devices.seconds is not None:
            self.wasted = leases - len(order.receipts)
        return order

    def _open(self, names: Sequence[str]) -> bool:
        """Open the round; a draw of more than its places is made again."""
        while True:
            with suppress(CohortOverflowError):
                return self._machine.open_round(names, self.now)

    def _at_work(self) -> list["_Work"]:
        """Give leases to the cohort and return what will come of them, the first to end first."""
        machine, source, everybody = self._machine, self._source, self._devices.names
        members = machine.cohort.members if machine.cohort is not None else None
        arrivals = source.choose(everybody, len(everybody)) if members is None else members
        work: list[_Work] = []
        for name in arrivals:
            answer = machine.check_in(name, self.now)
            if isinstance(answer, LeaseGiven) and not self._devices.is_away(source):
                end = self.now + self._devices.seconds_of(name, 0.0)
                work.append(_Work(end, len(work), name, answer.lease.nonce, source.bytes(16)))
        return sorted(work)


class BufferedArrivals:
    """Keep as many devices at work as may be, and let each commit when it is done."""

    def __init__(
        self,
        machine: BufferedMachine,
        source: SeededSource,
        devices: Devices,
        settings: RoundSettings,
    ) -> None:
        """Start with nobody at work.

        Args:
            machine: Before its first round.
            source: Draws who gets a lease when there is room.
            devices: The devices; where they take no time, each takes a second.
            settings: How rounds run.

        Raises:
            SimulationError: If too few devices are fast enough for any round to close.
        """
        in_time = sum(devices.seconds_of(name, 1.0) < settings.deadline_s for name in devices.names)
        if in_time < settings.quorum:
            raise SimulationError(
                f"rounds.deadline_s must leave time for the work of rounds.quorum = "
                f"{settings.quorum} devices, and {in_time} of {len(devices.names)} are done within "
                f"{settings.deadline_s:g} s; raise rounds.deadline_s"
            )
        self.now = 0.0
        self.wasted = 0
        self._machine = machine
        self._source = source
        self._devices = devices
        self._concurrency = settings.buffered.concurrency if settings.buffered else 0
        self._work: list[_Work] = []
        self._nonces: dict[str, bytes] = {}
        self._idle: set[str] = set()

    def next_order(self, names: Sequence[str]) -> Close | Abort | None:
        """Open a round and let time pass until it closes."""
        self.wasted = 0
        machine = self._machine
        if not machine.open_round(names, self.now):
            return None
        self._note_ends()
        self._idle = set(names) - self._nonces.keys()
        order = machine.tick(self.now)
        while order is None:
            self._hand_out()
            self._until_something_happens()
            order = machine.tick(self.now)
            self._note_ends()
        return order

    def _hand_out(self) -> None:
        """Give work to as many of those without as there is room for."""
        room = min(self._concurrency - len(self._nonces), len(self._idle))
        for name in self._source.choose(sorted(self._idle), max(0, room)):
            answer = self._machine.check_in(name, self.now)
            if isinstance(answer, LeaseGiven):
                self._begin(name, answer.lease.nonce, answer.lease.slot)

    def _begin(self, name: str, nonce: bytes, slot: int) -> None:
        self._idle.remove(name)
        self._nonces[name] = nonce
        end = self.now + self._devices.seconds_of(name, 1.0)
        is_away = self._devices.is_away(self._source)
        message = b"" if is_away else self._source.bytes(16)
        heapq.heappush(self._work, _Work(end, slot, name, nonce, message))

    def _until_something_happens(self) -> None:
        wakeup = self._machine.next_wakeup
        ends = self._work[0].end if self._work else math.inf
        if self._work and (wakeup is None or ends < wakeup):
            self.now = ends
            self._end(heapq.heappop(self._work))
        elif wakeup is None:
            raise SimulationError(
                f"round {self._machine.round_number} can never close: nobody is at work and too "
                "few updates came; lower rounds.quorum"
            )
        else:
            self.now = wakeup

    def _end(self, work: "_Work") -> None:
        """Commit what a device has done, unless its lease has ended or it went away."""
        if self._nonces.get(work.name) != work.nonce:
            return
        if not work.message:
            self._machine.lease_lost(work.name)
            self._idle.add(work.name)
        else:
            self._machine.commit(work.name, work.nonce, work.message, self.now)
        # Whoever commits is done for this round, whoever went away may come back.
        del self._nonces[work.name]

    def _note_ends(self) -> None:
        """Let go of those whose lease has ended: they are told, and ask for another."""
        out = self._machine.going_on
        for name, nonce in list(self._nonces.items()):
            if nonce not in out:
                del self._nonces[name]
                self._idle.add(name)
                self.wasted += 1


class _Work(NamedTuple):
    """Hold what a device is at; without a message it goes away instead."""

    end: float
    order: int
    name: str
    nonce: bytes
    message: bytes


def arrivals_of(
    machine: RoundsMachine,
    source: SeededSource,
    devices: Devices,
    settings: RoundSettings,
    *,
    now: float,
) -> Arrivals:
    """Return what brings the rounds of a machine about; buffered ones start at time 0.

    Raises:
        SimulationError: If too few devices are fast enough for any round to close.
    """
    if isinstance(machine, BufferedMachine):
        return BufferedArrivals(machine, source, devices, settings)
    return SynchronousArrivals(machine, source, devices, now=now)
