"""What evaluations by devices need under a guarantee, and what they cost."""

import math
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import insert

from models.tasks.metrics import Counts
from privacy.accounting.accountant import epsilon_of
from privacy.accounting.budget import BudgetExceededError
from privacy.accounting.events import (
    EvaluationRelease,
    GaussianRelease,
    PrivacyEvent,
    SecretCoinFlips,
)
from privacy.noise.limited_counts import LimitedSum
from privacy.noise.plan_events import evaluation_event, event_of
from privacy.noise.tree import DerivedKeys
from server.budget.noised_evaluations import NoisedEvaluations
from server.budget.round_gate import RoundGate
from server.config.evaluation_rules import coming_evaluations
from server.config.federation import ConfigError, FederationConfig
from server.config.start_lines import outlook
from server.config.store import StoreSettings
from server.records.failpoints import Failpoint, Failpoints
from server.records.ledger import ledger_events, prepare_entry, write_entry
from server.records.store import Store, open_store
from server.records.tables import runs
from tests.server.config.test_guarantee_rules import CENTRAL, LOCAL, SAMPLED, TREE, config

RUN = "ab" * 16
DEVICES = """
[evaluation]
kind = "devices"
cohort_size = 4
every_rounds = 2
noise = { noise_multiplier = 3.0, token_cap = 100, loss_cap = 10.0 }
"""
BARE = 'mode = "none"\nclipping_norm = 1.0'
EXAMPLES = """
[training.example_privacy]
clipping_norm = 0.5
noise_multiplier = 1.5
sampling_rate = 0.05
delta = 1e-5
"""
ROOMY = CENTRAL.replace("8.0", "100.0")
ONE = EvaluationRelease(noise_multiplier=3.0, adjacency="zero-out", sampling=None)
MASKED = CENTRAL.replace('"central"', '"masked"') + (
    "coordinator_epsilon_budget = 8.0\nhonest_share = 1.0\n"
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(StoreSettings(url=f"sqlite:///{tmp_path}/store.db"))
    with opened.write() as connection:
        connection.execute(
            insert(runs).values(run=RUN, seed=1, schema_sha256=bytes(32), created_at=0.0)
        )
    yield opened
    opened.close()


def released(store: Store, *events: PrivacyEvent) -> None:
    for event in events:
        entry = prepare_entry(store, event, run=RUN, round_number=1, now=1.0)
        with store.write() as connection:
            write_entry(connection, entry)


def counted() -> LimitedSum:
    noise = config(more=DEVICES).evaluation.noise
    assert noise is not None
    total = LimitedSum(noise, "zero-out", of_words=False)
    for _ in range(1000):
        total.add(Counts(token_count=100, log_loss_sum=500.0, top1_hits=20, top3_hits=40))
    return total


def evaluations(
    store: Store, federation: FederationConfig, failpoints: Failpoints | None = None
) -> NoisedEvaluations:
    keys = DerivedKeys(bytes(32))
    return NoisedEvaluations(federation, store, RUN, keys, failpoints or Failpoints())


@pytest.mark.parametrize(
    ("privacy", "more", "message"),
    [
        (CENTRAL, DEVICES.replace("noise = ", "# "), "give evaluation.noise"),
        (LOCAL, DEVICES, "promises that the coordinator sees nobody's data"),
        (MASKED, DEVICES, "promises that the coordinator sees nobody's data"),
        (CENTRAL, DEVICES + EXAMPLES, "promises that the coordinator sees no sentence"),
        (BARE, DEVICES + EXAMPLES, "promises that the coordinator sees no sentence"),
        (BARE, DEVICES, 'privacy.mode = "none" promises nothing: remove it'),
        (CENTRAL, DEVICES.replace('"devices"', '"none"').replace("cohort", "# "), "noise belongs"),
    ],
)
def test_what_cannot_be_promised_is_refused_with_its_reason(
    privacy: str, more: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        config(privacy, more=more)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("cohort_size = 21", r"cohort_size must be <= rounds\.population_size 20, got 21"),
        ("cohort_size = 4\nquorum = 2", "whether it was reached would tell who was drawn"),
    ],
)
def test_coins_of_an_evaluation_keep_their_secret(change: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(rounds=SAMPLED, more=DEVICES.replace("cohort_size = 4", change))


@pytest.mark.parametrize("privacy", [CENTRAL, TREE])
def test_devices_that_are_asked_as_they_come_amplify_nothing(privacy: str) -> None:
    federation = config(privacy, more=DEVICES)

    assert evaluation_event(federation.evaluation, federation.rounds, federation.privacy) == ONE


def test_coins_of_their_own_amplify() -> None:
    federation = config(rounds=SAMPLED, more=DEVICES)

    event = evaluation_event(federation.evaluation, federation.rounds, federation.privacy)

    coins = SecretCoinFlips(sampling_rate=0.2, population_size=20, slot_count=20)
    assert event == msgspec.structs.replace(ONE, sampling=coins)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("privacy", "rounds"), [(ROOMY, "cohort_size = 5"), (ROOMY, SAMPLED), (TREE, "cohort_size = 5")]
)
def test_a_run_costs_what_the_accountant_makes_of_rounds_and_evaluations(
    privacy: str, rounds: str, store: Store
) -> None:
    federation = config(privacy.replace("8.0", "100.0"), rounds, more=DEVICES)
    gate = RoundGate(federation, store, RUN, published=lambda: None)

    spent: list[PrivacyEvent] = []
    for number in (1, 2):
        spent.append(event_of(number, federation.rounds, federation.privacy))
        after = coming_evaluations(
            federation.evaluation, federation.rounds, federation.privacy, range(number, number + 1)
        )
        assert len(after) == (1 if number == 2 else 0)
        admitted = gate.admit(number)
        assert admitted is not None
        assert admitted.readers == pytest.approx(epsilon_of([*spent, *after], 1e-3), rel=1e-9)
        released(store, *spent[-1:])
    evaluations(store, federation).release(2, counted())

    assert ledger_events(store, RUN) == [*spent, *after]
    lines = outlook(federation, spent=ledger_events(store, RUN), first_round=3)
    # Rounds 3 to 10, and evaluations after rounds 4, 6, 8 and 10.
    coming = [event_of(n, federation.rounds, federation.privacy) for n in range(3, 11)]
    whole = epsilon_of([*spent, *after, *coming, *after * 4], 1e-3)
    assert f"after round 10 epsilon is {whole:.3g} " in lines[1]
    assert "4 evaluations by devices are counted in that" in lines[2]


def test_gaussian_releases_add_up_as_their_inverse_squares() -> None:
    # Ten rounds at 1.5 and five evaluations at 3 are one release: 10 / 1.5^2 + 5 / 3^2 = 5.
    federation = config(ROOMY, more=DEVICES)
    line = outlook(federation)[1]

    one = GaussianRelease(noise_multiplier=1 / math.sqrt(5), adjacency="zero-out", sampling=None)
    assert f"epsilon is {epsilon_of([one], 1e-3):.3g} " in line


def test_a_round_that_fits_only_without_its_evaluation_is_not_begun(store: Store) -> None:
    round_event = GaussianRelease(noise_multiplier=1.5, adjacency="zero-out", sampling=None)
    budget = epsilon_of([round_event] * 2, 1e-3) + 0.01
    gate = RoundGate(
        config(CENTRAL.replace("8.0", str(budget)), more=DEVICES),
        store,
        RUN,
        published=lambda: None,
    )
    released(store, round_event)

    with pytest.raises(BudgetExceededError, match=r"with its evaluation by devices, .* less often"):
        gate.admit(2)
    bare = RoundGate(
        config(CENTRAL.replace("8.0", str(budget))), store, RUN, published=lambda: None
    )
    admitted = bare.admit(2)
    assert admitted is not None
    assert admitted.readers == pytest.approx(budget - 0.01)


def test_an_evaluation_that_would_pass_the_budget_is_not_released(store: Store) -> None:
    federation = config(CENTRAL.replace("8.0", str(epsilon_of([ONE], 1e-3) + 0.01)), more=DEVICES)
    desk = evaluations(store, federation)
    figures = desk.release(2, counted())

    # A thousand devices at 5 nats: noise of 6 of them moves that by 0.03.
    assert figures["perplexity"] == pytest.approx(math.exp(5.0), rel=0.2)
    with pytest.raises(BudgetExceededError):
        desk.release(4, counted())
    assert ledger_events(store, RUN) == [ONE]


class PowerCutError(Exception):
    """Stand in for a crash."""


class PowerCut(Failpoints):
    def reach(self, moment: Failpoint) -> None:
        assert moment is Failpoint.EVALUATION_PAID
        raise PowerCutError


def test_a_crash_after_paying_has_released_nothing_and_stays_paid_for(store: Store) -> None:
    federation = config(ROOMY, more=DEVICES)
    with pytest.raises(PowerCutError):
        evaluations(store, federation, PowerCut()).release(2, counted())

    assert ledger_events(store, RUN) == [ONE]
    # What comes later has a draw of its own: no noise is used for two sums.
    later = evaluations(store, federation)
    assert later.release(4, counted()) != later.release(4, counted())
    assert ledger_events(store, RUN) == [ONE] * 3
