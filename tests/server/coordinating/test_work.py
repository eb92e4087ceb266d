"""A device is told that the run is over once there is nothing left that it could miss."""

from typing import cast

import msgspec

from privacy.noise.settings import NoNoise
from server.config.evaluation import EvaluationSettings
from server.config.rounds import RoundSettings
from server.coordinating.device_evaluation import DeviceEvaluation
from server.coordinating.work import Work
from server.machine.answers import Phase
from server.machine.rounds import RoundMachine
from server.uplink.acceptance import Intake
from tests.server.round_hands import CountingSource


def test_nobody_is_sent_away_before_fits_and_the_last_evaluation_are_at_hand() -> None:
    rounds = msgspec.convert(
        {"cap": 3, "cohort_size": 2, "quorum": 1, "deadline_s": 10.0}, RoundSettings
    )
    machine = RoundMachine(rounds, CountingSource(), round_number=4)
    evaluation = DeviceEvaluation(
        EvaluationSettings(), CountingSource(), rounds=rounds, privacy=NoNoise()
    )
    work = Work(machine, cast("Intake", None), evaluation, None)  # no round is in hand
    assert machine.phase is Phase.FINISHED

    assert work.order_for("device-0001") is None
    work.is_over = True
    order = work.order_for("device-0001")

    assert order is not None
    assert order.retry_after.reason == "finished"
