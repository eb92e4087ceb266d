"""Evaluations by devices: who is asked, what is counted, and when it is over."""

import math

import msgspec
import pytest

from models.tasks.metrics import Counts
from privacy.noise.calibrated_settings import CentralNoise
from privacy.noise.evaluation_settings import EvaluationNoise
from privacy.noise.limited_counts import LimitedSum
from privacy.noise.settings import NoNoise, PrivacySettings
from protos import federation_pb2 as pb
from protos.refusals import RefusalCode
from server.config.evaluation import EvaluationSettings
from server.config.rounds import RoundSettings
from server.coordinating.device_evaluation import DeviceEvaluation
from server.devices.refused_calls import RefusedError
from tests.server.round_hands import CountingSource, round_in_hand

NOW = 100.0
SETTINGS = EvaluationSettings(kind="devices", cohort_size=2, quorum=1, deadline_s=60.0)
DRAWN = RoundSettings(cap=1, cohort_size=1, quorum=1, deadline_s=60.0)
BARE = NoNoise()
NOISE = EvaluationNoise(noise_multiplier=0.01, token_cap=100, loss_cap=10.0)
CENTRAL = CentralNoise(
    clipping_norm=1.0,
    noise_multiplier=1.0,
    delta=1e-3,
    epsilon_budget=1.0,
    adjacency="zero-out",
)


@pytest.fixture
def evaluation() -> DeviceEvaluation:
    return evaluation_of(SETTINGS)


def evaluation_of(
    settings: EvaluationSettings, rounds: RoundSettings = DRAWN, privacy: PrivacySettings = BARE
) -> DeviceEvaluation:
    return DeviceEvaluation(settings, CountingSource(), rounds=rounds, privacy=privacy)


def lease_of(evaluation: DeviceEvaluation, client: str) -> pb.Lease:
    order = evaluation.work_for(client, NOW)
    assert order is not None
    return order.lease


def report(
    nonce: bytes, *, tokens: int = 10, loss: float = 5.0, top1: int = 1, top3: int = 2
) -> pb.ReportEvaluationRequest:
    return pb.ReportEvaluationRequest(
        lease_nonce=nonce, token_count=tokens, log_loss_sum=loss, top1_hits=top1, top3_hits=top3
    )


def test_reports_are_gathered_and_the_evaluation_ends_with_the_last(
    evaluation: DeviceEvaluation,
) -> None:
    assert evaluation.begin(["a", "b"], round_in_hand(4), NOW)
    leases = {client: lease_of(evaluation, client) for client in "ab"}

    evaluation.report("a", report(leases["a"].nonce), NOW)
    assert evaluation.tick(NOW) is None
    evaluation.report("b", report(leases["b"].nonce, tokens=30, loss=1.0, top1=3, top3=4), NOW)

    assert evaluation.tick(NOW) == [
        Counts(token_count=10, log_loss_sum=5.0, top1_hits=1, top3_hits=2),
        Counts(token_count=30, log_loss_sum=1.0, top1_hits=3, top3_hits=4),
    ]
    assert evaluation.in_hand is None
    assert evaluation.next_wakeup is None
    # The lease is of the round that starts from the model.
    assert leases["a"].round_number == 4


def test_a_repeated_report_counts_once(evaluation: DeviceEvaluation) -> None:
    evaluation.begin(["a", "b"], round_in_hand(4), NOW)
    lease = lease_of(evaluation, "a")

    evaluation.report("a", report(lease.nonce), NOW)
    evaluation.report("a", report(lease.nonce), NOW)

    assert evaluation.tick(NOW + 60.0) == [
        Counts(token_count=10, log_loss_sum=5.0, top1_hits=1, top3_hits=2)
    ]


def test_without_a_quorum_it_comes_to_nothing(evaluation: DeviceEvaluation) -> None:
    evaluation.begin(["a", "b"], round_in_hand(4), NOW)

    assert evaluation.next_wakeup == NOW + 60.0
    assert evaluation.tick(NOW + 60.0) == []


def test_too_few_devices_are_not_asked_at_all(evaluation: DeviceEvaluation) -> None:
    assert not evaluation.begin(["a"], round_in_hand(4), NOW)
    assert evaluation.in_hand is None
    assert evaluation.work_for("a", NOW) is None


def test_nobody_waits_for_a_device_that_declines(evaluation: DeviceEvaluation) -> None:
    evaluation.begin(["a", "b"], round_in_hand(4), NOW)
    evaluation.report("a", report(lease_of(evaluation, "a").nonce), NOW)

    evaluation.decline("b")

    reports = evaluation.tick(NOW)
    assert isinstance(reports, list)
    assert [counts.token_count for counts in reports] == [10]


@pytest.mark.parametrize(
    "counts",
    [
        {"tokens": 0, "top1": 0, "top3": 0},
        {"loss": math.nan},
        {"loss": math.inf},
        {"loss": -1.0},
        {"top1": 3, "top3": 2},
        {"top1": 1, "top3": 11},
    ],
)
def test_impossible_counts_are_refused(
    evaluation: DeviceEvaluation, counts: dict[str, float]
) -> None:
    evaluation.begin(["a", "b"], round_in_hand(4), NOW)
    lease = lease_of(evaluation, "a")

    with pytest.raises(RefusedError) as caught:
        evaluation.report("a", report(lease.nonce, **counts), NOW)  # type: ignore[arg-type]

    assert caught.value.code is RefusalCode.COUNTS
    evaluation.report("a", report(lease.nonce), NOW)


def test_a_report_without_a_lease_is_refused(evaluation: DeviceEvaluation) -> None:
    with pytest.raises(RefusedError) as caught:
        evaluation.report("a", report(bytes(16)), NOW)
    assert caught.value.code is RefusalCode.UNKNOWN_LEASE

    evaluation.begin(["a", "b"], round_in_hand(4), NOW)
    with pytest.raises(RefusedError) as caught:
        evaluation.report("a", report(bytes(16)), NOW)
    assert caught.value.code is RefusalCode.UNKNOWN_LEASE


def test_it_is_due_for_devices_every_so_many_rounds() -> None:
    settings = EvaluationSettings(kind="devices", cohort_size=1, every_rounds=3)
    evaluation = evaluation_of(settings)

    assert [number for number in range(1, 10) if evaluation.is_due(number)] == [3, 6, 9]
    assert not evaluation_of(EvaluationSettings()).is_due(3)


def test_under_a_guarantee_the_sum_is_one_of_limited_counts() -> None:
    evaluation = evaluation_of(msgspec.structs.replace(SETTINGS, noise=NOISE), privacy=CENTRAL)
    evaluation.begin(["a", "b"], round_in_hand(4), NOW)
    expected = LimitedSum(NOISE, "zero-out")
    for client, tokens in (("a", 10), ("b", 400)):
        sent = report(lease_of(evaluation, client).nonce, tokens=tokens)
        evaluation.report(client, sent, NOW)
        evaluation.report(client, sent, NOW)
        expected.add(Counts(token_count=tokens, log_loss_sum=5.0, top1_hits=1, top3_hits=2))

    total = evaluation.tick(NOW)

    assert isinstance(total, LimitedSum)
    assert total.noised(bytes(32)) == expected.noised(bytes(32))


def test_coins_ask_anybody_and_wait_for_the_deadline_whoever_came() -> None:
    sampled = RoundSettings(
        cap=1,
        selection="sampled",
        participation_rate=0.5,
        population_size=4,
        quorum=1,
        deadline_s=10.0,
        close_early=False,
    )
    evaluation = evaluation_of(msgspec.structs.replace(SETTINGS, noise=NOISE), sampled, CENTRAL)
    assert evaluation.draws_by_coins

    # Heads for everybody: more than the two that are asked on average.
    assert evaluation.begin(["a", "b", "c"], round_in_hand(4), NOW)
    for client in "abc":
        evaluation.report(client, report(lease_of(evaluation, client).nonce), NOW)

    assert evaluation.tick(NOW + 59.0) is None
    assert isinstance(evaluation.tick(NOW + 60.0), LimitedSum)

    # Nobody came: what is released then is noise, as if they had been too few to stand out.
    evaluation.begin(["a"], round_in_hand(5), NOW)
    assert isinstance(evaluation.tick(NOW + 60.0), LimitedSum)
    assert not evaluation.begin(["a", "b", "c", "d", "e"], round_in_hand(6), NOW)
