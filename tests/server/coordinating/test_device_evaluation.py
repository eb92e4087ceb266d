"""Evaluations by devices: who is asked, what is counted, and when it is over."""

import dataclasses
import math

import msgspec
import pytest

from models.settings.character import CharLstmSettings
from models.settings.model import schema_of
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
from server.releases.judge import figures_of_devices
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
    nonce: bytes,
    *,
    tokens: int = 10,
    loss: float = 5.0,
    top1: int = 1,
    top3: int = 2,
    words: int | None = 8,
    unknown: int = 3,
) -> pb.ReportEvaluationRequest:
    return pb.ReportEvaluationRequest(
        lease_nonce=nonce,
        token_count=tokens,
        log_loss_sum=loss,
        top1_hits=top1,
        top3_hits=top3,
        word_count=words,
        unknown_count=unknown,
    )


def counts(tokens: int, loss: float, *, top1: int = 1, top3: int = 2) -> Counts:
    """Return what is made of such a report: eight words of the tokens, of which three unknown."""
    return Counts(
        token_count=tokens,
        log_loss_sum=loss,
        top1_hits=top1,
        top3_hits=top3,
        end_count=tokens - 8,
        unknown_count=3,
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
        counts(10, 5.0),
        counts(30, 1.0, top1=3, top3=4),
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

    assert evaluation.tick(NOW + 60.0) == [counts(10, 5.0)]


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
    assert [own.token_count for own in reports] == [10]


@pytest.mark.parametrize("is_guarded", [False, True])
def test_hits_of_a_device_that_took_ends_for_words_are_not_counted(
    *, is_guarded: bool, caplog: pytest.LogCaptureFixture
) -> None:
    guarded = msgspec.structs.replace(SETTINGS, noise=NOISE)
    evaluation = evaluation_of(guarded, privacy=CENTRAL) if is_guarded else evaluation_of(SETTINGS)
    evaluation.begin(["a", "b"], round_in_hand(4), NOW)
    before = report(lease_of(evaluation, "a").nonce, top1=5, top3=9, words=None, unknown=0)

    evaluation.report("a", before, NOW)
    evaluation.report("b", report(lease_of(evaluation, "b").nonce), NOW)
    found = evaluation.tick(NOW)

    # Its perplexity is over the same targets as ever, and it has no word to be suggested.
    of_before = Counts(token_count=10, log_loss_sum=5.0, end_count=10)
    assert "1 devices take ends of sentences for words" in caplog.text
    if isinstance(found, LimitedSum):
        expected = LimitedSum(NOISE, "zero-out", of_words=True)
        for own in (of_before, counts(10, 5.0)):
            expected.add(own)
        assert found.noised(bytes(32)) == expected.noised(bytes(32))
        return
    assert found == [of_before, counts(10, 5.0)]
    assert figures_of_devices(found, of_words=True) == {
        "perplexity": pytest.approx(math.exp(0.5)),
        "top1_recall": 1 / 8,
        "top3_recall": 2 / 8,
        "unknown_words": 3 / 8,
        "listed_top1_recall": 1 / 5,
        "listed_top3_recall": 2 / 5,
    }


def test_a_task_without_words_reports_as_it_did(evaluation: DeviceEvaluation) -> None:
    in_hand = round_in_hand(4)
    model = CharLstmSettings(hidden_size=2)
    characters = msgspec.structs.replace(
        in_hand.plan,
        task="next_character",
        model=model,
        vocabulary=None,
        schema_sha256=schema_of(model).sha256.hex(),
    )
    evaluation.begin(["a", "b"], dataclasses.replace(in_hand, plan=characters), NOW)
    nonce = lease_of(evaluation, "a").nonce

    with pytest.raises(RefusedError):
        evaluation.report("a", report(nonce), NOW)
    evaluation.report("a", report(nonce, words=None, unknown=0), NOW)
    evaluation.decline("b")

    assert evaluation.tick(NOW) == [
        Counts(token_count=10, log_loss_sum=5.0, top1_hits=1, top3_hits=2)
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"tokens": 0, "top1": 0, "top3": 0},
        {"loss": math.nan},
        {"loss": math.inf},
        {"loss": -1.0},
        {"top1": 3, "top3": 2},
        {"top1": 1, "top3": 11, "words": None, "unknown": 0},
        {"top3": 6},
        {"words": 11},
        {"top1": 0, "top3": 0, "words": 8, "unknown": 9},
        {"top1": 0, "top3": 0, "words": 0, "unknown": 1},
    ],
)
def test_impossible_counts_are_refused(
    evaluation: DeviceEvaluation, wrong: dict[str, float]
) -> None:
    evaluation.begin(["a", "b"], round_in_hand(4), NOW)
    lease = lease_of(evaluation, "a")

    with pytest.raises(RefusedError) as caught:
        evaluation.report("a", report(lease.nonce, **wrong), NOW)  # type: ignore[arg-type]

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
    expected = LimitedSum(NOISE, "zero-out", of_words=True)
    for client, tokens in (("a", 10), ("b", 400)):
        sent = report(lease_of(evaluation, client).nonce, tokens=tokens)
        evaluation.report(client, sent, NOW)
        evaluation.report(client, sent, NOW)
        expected.add(counts(tokens, 5.0))

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
