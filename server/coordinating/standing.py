"""Where a run stands at one moment, by what the coordinator has in memory: no store is asked."""

from collections.abc import Mapping
from dataclasses import dataclass

from privacy.accounting.onlookers import Epsilons
from server.machine.answers import Phase
from server.machine.rounds import RoundMachine


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The state of a run, for its operator.

    Times are seconds since 1970 UTC; what is counted begins with the process.

    Attributes:
        released_rounds: Number of the newest released round; 0 before the first.
        round_number: Round that is open or comes next.
        attempt: How often it was started over.
        due_at: When it should be over, by the deadline of the first attempt that this process
            knows; None if it is not open yet.
        remaining_s: Seconds until the open attempt closes; 0 when none is open.
        phase_seconds: Seconds spent in each phase.
        quorum: Devices that must be there to open a round.
        connected: Devices whose stream is open.
        leased: Connected devices that work on the round.
        committed: Devices whose update is in.
        device_versions: Connected devices by the version that they told.
        refusals: Refused plans and uploads, by code.
        received_bytes: Bytes of updates that came.
        sent_bytes: Bytes of models that went.
        closing_s: Seconds in which the newest round was summed; None before one, or where that is
            a secret.
        spent: Epsilon against each onlooker, the open attempt included; None if nothing is promised
            or was spent.
        certificates_end_at: End of the coordinator's own certificates.
        issuer_ends_at: End of what certifies them and devices.
    """

    released_rounds: int
    round_number: int
    attempt: int
    due_at: float | None
    remaining_s: float
    phase: Phase
    phase_seconds: Mapping[Phase, float]
    is_paused: bool
    quorum: int
    connected: int
    leased: int
    committed: int
    device_versions: Mapping[str, int]
    refusals: Mapping[str, int]
    received_bytes: int
    sent_bytes: int
    closing_s: float | None
    spent: Epsilons | None
    certificates_end_at: float
    issuer_ends_at: float


class PhaseClock:
    """The seconds that a run spends in each phase, by any clock that only goes forward.

    Attributes:
        seconds: Seconds in each phase, up to the newest note.
        due: When the round should be over, however often it was started over; None if none is open.
    """

    def __init__(self, machine: RoundMachine, now: float) -> None:
        """Begin with the machine's present phase; ``note`` is to be called at each change."""
        self.seconds = dict.fromkeys(Phase, 0.0)
        self.due: float | None = None
        self._machine = machine
        self._phase, self._since = machine.phase, now

    def note(self, now: float) -> None:
        """Count the time since the last note for the phase of then, and begin with that of now."""
        machine = self._machine
        self.seconds[self._phase] += now - self._since
        self._phase, self._since = machine.phase, now
        is_between = machine.phase is Phase.WAITING and machine.attempt == 0
        if is_between or machine.phase is Phase.FINISHED:
            self.due = None
        elif self.due is None:
            self.due = machine.deadline
