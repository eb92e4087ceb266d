"""Know what each device works on: a round, an evaluation, or a model of its own."""

import time

from protos import federation_pb2 as pb
from server.coordinating.device_evaluation import DeviceEvaluation
from server.coordinating.fits import Fits
from server.devices.dispatcher import come_back
from server.downlink.attempt_in_hand import RoundInHand
from server.machine.answers import ComeBack, ComeBackReason, Lease, LeaseGiven
from server.machine.rounds import RoundMachine
from server.uplink.acceptance import Intake

_FINISHED_RETRY_S = 3600


class Work:
    """The work of each device, and what its lease is for; an evaluation goes before the next round.

    ``is_over`` is set once devices may learn that the run has ended: no evaluation is to come, and
    fits can begin.
    """

    def __init__(
        self,
        machine: RoundMachine,
        intake: Intake,
        evaluation: DeviceEvaluation,
        fits: Fits | None,
    ) -> None:
        """Join what gives leases; ``fits`` is None where devices get a model by taking part."""
        self.machine = machine
        self.intake = intake
        self.evaluation = evaluation
        self.fits = fits
        self.is_over = False

    def order_for(self, client: str, held: bytes | None = None) -> pb.WorkOrder | None:
        """Return what a connected device is to do; None means to wait, or to go on.

        ``held`` is the nonce of the lease that it works on. An order for that very lease is not
        made: every device is asked for each one that leaves.
        """
        now = time.monotonic()
        if self.evaluation.in_hand is not None:
            return self.evaluation.work_for(client, now)
        match self.machine.check_in(client, now):
            case LeaseGiven(lease) if (in_hand := self.intake.in_hand) is not None:
                if self.fits is not None:
                    self.fits.end(client)
                if lease.nonce == held:
                    return None
                return in_hand.work_order(lease, now)
            case ComeBack(reason=ComeBackReason.FINISHED) if self.is_over:
                return self._fit_for(client, now) or come_back("finished", _FINISHED_RETRY_S)
            case ComeBack(reason=ComeBackReason.NOT_IN_COHORT | ComeBackReason.ROUND_FULL):
                return self._fit_for(client, now)
            case _:
                return None

    def _fit_for(self, client: str, now: float) -> pb.WorkOrder | None:
        if self.fits is None:
            return None
        return self.fits.work_for(client, now, round(time.time() * 1000))

    def lease_of(self, client: str, nonce: bytes) -> tuple[Lease, RoundInHand]:
        """Return a lease, for training, evaluating or fitting, and what its holder works on.

        Raises:
            RefusedError: If there is no such lease.
        """
        asked = self.evaluation.in_hand
        if asked is not None:
            lease = self.evaluation.lease_of(client, nonce, time.monotonic())
            if lease is not None:
                return lease, asked
        if self.fits is not None:
            fit = self.fits.lease_of(client, nonce, time.monotonic())
            if fit is not None:
                return fit
        return self.intake.lease_of(client, nonce)

    def decline(self, client: str) -> None:
        """Wait no longer for a client, whatever it works on."""
        self.machine.decline(client)
        self.intake.drop(client)
        self.evaluation.decline(client)
        if self.fits is not None:
            self.fits.decline(client)

    @property
    def going_on(self) -> frozenset[bytes]:
        """Return the nonces of the leases that outlast a round: those of fits."""
        return frozenset() if self.fits is None else frozenset(self.fits.nonces)
