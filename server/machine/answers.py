"""The inputs and answers of a round's state machine."""

from dataclasses import dataclass
from enum import StrEnum

from protos.refusals import RefusalCode
from server.machine.refusals import TEXTS


class Phase(StrEnum):
    """The state of a run."""

    WAITING = "waiting"
    """No round is open; the next one may be opened."""
    OPEN = "open"
    CLOSING = "closing"
    """The updates are being aggregated; the round takes no more."""
    GIVEN_UP = "given_up"
    """A round was started over too often; the operator must resume the run."""
    FINISHED = "finished"
    """The run reached its cap or its convergence criterion."""


def shown_phase(phase: str, *, hides_cohort: bool) -> str:
    """Return a phase as a reader of figures may see it.

    Where it is a secret how many came, a round that is summed counts as open: how long the sum
    takes would tell.
    """
    return Phase.OPEN if hides_cohort and phase == Phase.CLOSING else phase


class ComeBackReason(StrEnum):
    """The reason why a device gets no lease now; it keeps its stream open and is called."""

    NO_ROUND = "no_round"
    NOT_IN_COHORT = "not_in_cohort"
    ALREADY_COMMITTED = "already_committed"
    DECLINED = "declined"
    ROUND_FULL = "round_full"
    CLOSING = "closing"
    GIVEN_UP = "given_up"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Lease:
    """One client's right to contribute to one attempt of one round.

    Attributes:
        nonce: 16 random bytes; bound into the sealed update.
        attempt: How often the round was started over before, from 0.
        slot: Place in the order of summation, from 0.
        deadline: Its end, in seconds of the machine's clock.
    """

    nonce: bytes
    client: str
    round_number: int
    attempt: int
    slot: int
    deadline: float


@dataclass(frozen=True, slots=True)
class Receipt:
    """The answer to a commit, now and whenever it is repeated; the message's id has 16 bytes."""

    nonce: bytes
    client: str
    round_number: int
    attempt: int
    slot: int
    message_id: bytes


@dataclass(frozen=True, slots=True)
class LeaseGiven:
    """The answer to a check-in with a lease, new or the one the client already had."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class ComeBack:
    """The answer to a check-in with a time to ask again if nobody calls before, at least 1 s."""

    reason: ComeBackReason
    seconds: float


@dataclass(frozen=True, slots=True)
class CommitBegun:
    """The answer to a commit's start: make the update durable, then finish the commit."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Committed:
    """The answer to a commit; ``repeated`` if it had been committed before."""

    receipt: Receipt
    repeated: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal; nothing has changed."""

    code: RefusalCode

    @property
    def text(self) -> str:
        """Return one line that says what to do."""
        return TEXTS[self.code]


@dataclass(frozen=True, slots=True)
class Close:
    """The order to close a round, with its places and its receipts in slot order."""

    round_number: int
    attempt: int
    slot_count: int
    receipts: tuple[Receipt, ...]

    def places(self) -> dict[str, int]:
        """Return each contributor's place in the aggregation, by client name, in [0, slot_count).

        In a drawn cohort the place is the slot. With spare leases it is the rank among those who
        committed, because an unused spare lease is not an empty place.
        """
        ranked = max((receipt.slot for receipt in self.receipts), default=0) >= self.slot_count
        return {
            receipt.client: rank if ranked else receipt.slot
            for rank, receipt in enumerate(self.receipts)
        }


@dataclass(frozen=True, slots=True)
class Abort:
    """The end of an attempt without a model; its receipts (in slot order) expire for the reason."""

    round_number: int
    attempt: int
    reason: str
    receipts: tuple[Receipt, ...]
    gives_up: bool
