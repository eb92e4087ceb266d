"""Measure a released model on devices outside the round that made it.

Under a guarantee only the sum of the devices' counts is kept, limited per device. Without one the
reports wait in memory, nameless, for their median, which no single one can move beyond the others.
A restart ends an evaluation; the next round's model is evaluated instead.
"""

import logging
import math
from collections.abc import Sequence

import msgspec

from models.tasks.metrics import Counts
from privacy.noise.calibrated_settings import CentralNoise, TreeNoise
from privacy.noise.limited_counts import LimitedSum
from privacy.noise.settings import PrivacySettings
from protos import federation_pb2 as pb
from protos.refusals import RefusalCode
from server.config.evaluation import EvaluationSettings
from server.config.evaluation_rules import draws_by_coins
from server.config.rounds import RoundSettings
from server.devices.refused_calls import RefusedError
from server.downlink.attempt_in_hand import RoundInHand
from server.machine.answers import Abort, Close, Lease, LeaseGiven, Phase, Refused
from server.machine.cohort import EntropySource, PopulationTooLargeError
from server.machine.evaluation import evaluation_machine
from server.machine.rounds import RoundMachine

_LOG = logging.getLogger(__name__)


class DeviceEvaluation:
    """The evaluation that is running, if one is; ``in_hand`` holds its model and plan."""

    def __init__(
        self,
        settings: EvaluationSettings,
        source: EntropySource,
        *,
        rounds: RoundSettings,
        privacy: PrivacySettings,
    ) -> None:
        self.in_hand: RoundInHand | None = None
        self._settings = settings
        self._rounds = rounds
        self._privacy = privacy
        self._source = source
        self._machine: RoundMachine | None = None
        self._of_words = False
        self._reported: list[Counts] | LimitedSum = []
        self._of_before = 0

    @property
    def next_wakeup(self) -> float | None:
        """Return when the running evaluation ends at the latest, or None."""
        return None if self._machine is None else self._machine.next_wakeup

    @property
    def deadline_s(self) -> float:
        """Return the seconds that devices have to report."""
        return self._settings.deadline_s

    @property
    def draws_by_coins(self) -> bool:
        """Return whether secret coins draw from everybody enrolled, connected or not."""
        return draws_by_coins(self._settings, self._rounds)

    def is_due(self, round_number: int) -> bool:
        """Return whether devices evaluate the model of this round."""
        return self._settings.asks_devices(round_number)

    def begin(self, candidates: Sequence[str], in_hand: RoundInHand, now: float) -> bool:
        """Ask as many of the candidates as the settings say; return False if they are too few.

        Candidates are connected devices that did not make the model, or everybody enrolled if coins
        draw. The plan of ``in_hand`` is of kind ``evaluate``.
        """
        machine = evaluation_machine(self._settings, self._rounds, self._source)
        try:
            is_open = machine.open_round(candidates, now)
        except PopulationTooLargeError as error:
            _LOG.error("round %s is not evaluated: %s", in_hand.round_number - 1, error)
            return False
        if not is_open:
            _LOG.warning(
                "round %s is not evaluated: %s devices are connected that did not make its model",
                in_hand.round_number - 1,
                len(candidates),
            )
            return False
        self._machine, self.in_hand = machine, in_hand
        self._of_words = in_hand.plan.vocabulary is not None
        self._reported, self._of_before = self._nothing(), 0
        return True

    def _nothing(self) -> list[Counts] | LimitedSum:
        noise, privacy = self._settings.noise, self._privacy
        if noise is None or not isinstance(privacy, CentralNoise | TreeNoise):
            return []
        return LimitedSum(noise, privacy.adjacency, of_words=self._of_words)

    def work_for(self, client: str, now: float) -> pb.WorkOrder | None:
        """Return the client's work order, or None if it is not asked."""
        if self._machine is None or self.in_hand is None:
            return None
        answer = self._machine.check_in(client, now)
        return (
            self.in_hand.work_order(answer.lease, now) if isinstance(answer, LeaseGiven) else None
        )

    def lease_of(self, client: str, nonce: bytes, now: float) -> Lease | None:
        """Return the client's lease in the running evaluation, or None."""
        if self._machine is None:
            return None
        lease = self._machine.lease_of(client, nonce, now)
        return None if isinstance(lease, Refused) else lease

    def report(self, client: str, report: pb.ReportEvaluationRequest, now: float) -> None:
        """Take a device's counts; a repeated report is answered and not counted again.

        Raises:
            RefusedError: If the device was not asked, or the counts are impossible.
        """
        if self._machine is None:
            raise RefusedError(RefusalCode.UNKNOWN_LEASE)
        counts = _checked(report, of_words=self._of_words)
        # A device's counts have no identifier of their own: its lease's nonce serves.
        repeated = self._machine.receipt_of(client, report.lease_nonce) is not None
        answer = self._machine.commit(client, report.lease_nonce, report.lease_nonce, now)
        if isinstance(answer, Refused):
            raise RefusedError(answer.code, answer.text)
        if repeated:
            return
        self._of_before += self._of_words and not report.HasField("word_count")
        if isinstance(self._reported, LimitedSum):
            self._reported.add(counts)
        else:
            self._reported.append(counts)

    def leave(self, client: str) -> None:
        """Note that the client went away."""
        if self._machine is not None:
            self._machine.lease_lost(client)

    def decline(self, client: str) -> None:
        """Note that the client takes no part."""
        if self._machine is not None:
            self._machine.decline(client)

    def tick(self, now: float) -> list[Counts] | LimitedSum | None:
        """Return the reports or their sum once the evaluation has ended; none without a quorum."""
        if self._machine is None or self._machine.phase is not Phase.OPEN:
            return None
        order = self._machine.tick(now)
        if order is None:
            return None
        self._machine, self.in_hand = None, None
        if self._of_before:
            _LOG.warning(
                "%s devices take ends of sentences for words, as versions of before did: of their "
                "counts only the perplexity is used; update them",
                self._of_before,
            )
        match order:
            case Close():
                return self._reported
            case Abort(reason=reason):
                _LOG.warning("an evaluation came to nothing: %s", reason)
                return []


def _checked(report: pb.ReportEvaluationRequest, *, of_words: bool) -> Counts:
    loss = report.log_loss_sum
    # A device of before, like one whose task has no words, tells of none.
    tells_words = report.HasField("word_count")
    targets = report.word_count if tells_words else report.token_count
    if (
        report.token_count < 1
        or not 0 <= loss < math.inf
        or not report.top1_hits <= report.top3_hits <= targets - report.unknown_count
        or targets > report.token_count
        or (not of_words and (tells_words or report.unknown_count))
    ):
        raise RefusedError(
            RefusalCode.COUNTS,
            "counts must be of at least one token, with a finite loss >= 0 and "
            "top1_hits <= top3_hits <= token_count; of words word_count <= token_count and "
            "top3_hits <= word_count - unknown_count",
        )
    counts = Counts(
        token_count=report.token_count,
        log_loss_sum=loss,
        top1_hits=report.top1_hits,
        top3_hits=report.top3_hits,
    )
    if not of_words:
        return counts
    if not tells_words:
        # Its hits are shares of another whole. No words: it has a perplexity, and no recall.
        return msgspec.structs.replace(
            counts, top1_hits=0, top3_hits=0, end_count=report.token_count
        )
    return msgspec.structs.replace(
        counts,
        end_count=report.token_count - report.word_count,
        unknown_count=report.unknown_count,
    )
