"""A run under masks pays for attempts against the coordinator, and for releases against readers."""

import msgspec
import pytest

from privacy.accounting.accountant import epsilon_of
from privacy.accounting.budget import BudgetExceededError
from privacy.accounting.events import MaskedAttempt, MaskedRelease
from privacy.accounting.onlookers import Epsilons
from server.budget.round_entries import RoundEntries
from server.budget.round_gate import RoundGate
from server.budget.spent_figures import figures_of_spent
from server.config.federation import FederationConfig
from server.config.plans import make_plan
from server.config.start_lines import outlook
from server.records.attempts import OpenAttempt, abort_attempt, open_attempt
from server.records.ledger import ledger_entries, ledger_events, write_entry
from server.records.store import Store
from tests.server.config.test_guarantee_rules import CENTRAL, config
from tests.server.conftest import RUN

DELTA = 1e-3
# Of ten contributors seven are believed to add their noise.
ATTEMPT = MaskedAttempt(noise_multiplier=1.5, adjacency="zero-out", honest_contributors=7)
RELEASE = MaskedRelease(noise_multiplier=1.5, adjacency="zero-out", honest_contributors=7)
MASKED = (
    CENTRAL.replace('"central"', '"masked"').replace("8.0", "{readers}")
    + "coordinator_epsilon_budget = {coordinator}\nhonest_share = 0.7\n"
)


def federation(*, readers: float = 100.0, coordinator: float = 100.0) -> FederationConfig:
    privacy = MASKED.format(readers=readers, coordinator=coordinator)
    made = config(privacy, rounds="cohort_size = 12")
    return msgspec.structs.replace(made, rounds=msgspec.structs.replace(made.rounds, quorum=10))


def gate(store: Store, settings: FederationConfig) -> RoundGate:
    return RoundGate(settings, store, RUN, published=lambda: None)


def attempt(store: Store, asked: RoundGate, round_number: int, number: int) -> Epsilons:
    """Admit an attempt and enter it, as a coordinator does before its first lease."""
    spent = asked.admit(round_number, number)
    opened = OpenAttempt(
        round_number=round_number,
        attempt=number,
        members=None,
        base_sha256=bytes(32),
        opened_at=1.0,
        deadline_ms=2000,
    )
    open_attempt(store, opened, asked.entries.of_attempt(round_number, number))
    assert spent is not None
    return spent


def abandon(store: Store, round_number: int, number: int) -> None:
    abort_attempt(store, round_number, number, "too few", now=2.0)


def release(store: Store, asked: RoundGate, settings: FederationConfig, round_number: int) -> None:
    with store.write() as connection:
        write_entry(connection, asked.entries.of_release(round_number, settings.privacy))


def test_an_abandoned_attempt_is_charged_against_the_coordinator_alone(store: Store) -> None:
    settings = federation()
    asked = gate(store, settings)

    first = attempt(store, asked, 1, 0)
    abandon(store, 1, 0)
    second = attempt(store, asked, 1, 1)
    release(store, asked, settings, 1)

    assert ledger_events(store, RUN) == [ATTEMPT, ATTEMPT, RELEASE]
    assert first == (
        epsilon_of([RELEASE], DELTA),
        epsilon_of([ATTEMPT], DELTA, "coordinator"),
        DELTA,
    )
    assert second.readers == first.readers
    assert second.coordinator == epsilon_of([ATTEMPT] * 2, DELTA, "coordinator")


def test_a_restart_charges_no_attempt_twice(store: Store) -> None:
    settings = federation()
    before = attempt(store, gate(store, settings), 1, 0)

    after = gate(store, settings)  # Of another process.

    assert after.entries.is_paid(1, 0)
    assert not after.entries.is_paid(1, 1)
    assert after.entries.of_attempt(1, 0) is None
    assert after.admit(1, 0) == before
    release(store, after, settings, 1)
    # The release of this round is no attempt at it, and the next round's is not paid for.
    assert not after.entries.is_paid(1, 1)
    assert not after.entries.is_paid(2, 0)
    assert ledger_events(store, RUN) == [ATTEMPT, RELEASE]


def test_the_readers_budget_stops_the_run(store: Store) -> None:
    settings = federation(readers=epsilon_of([RELEASE] * 2, DELTA) + 1e-6)
    for number in (1, 2):
        asked = gate(store, settings)
        attempt(store, asked, number, 0)
        release(store, asked, settings, number)

    with pytest.raises(BudgetExceededError, match="above epsilon_budget"):
        gate(store, settings).admit(3)


def test_the_coordinators_budget_stops_the_run_after_attempts_that_came_to_nothing(
    store: Store,
) -> None:
    settings = federation(coordinator=epsilon_of([ATTEMPT] * 2, DELTA, "coordinator") + 1e-6)
    for number in (0, 1):
        attempt(store, gate(store, settings), 1, number)
        abandon(store, 1, number)

    for _ in range(2):  # The second time as after a restart.
        with pytest.raises(BudgetExceededError, match="above coordinator_epsilon_budget"):
            gate(store, settings).admit(1, 2)
    assert len(ledger_entries(store)) == 2


def test_an_attempt_that_was_paid_for_is_closed_whatever_is_left_of_that_budget(
    store: Store,
) -> None:
    attempt(store, gate(store, federation()), 1, 0)
    nothing_left = 1e-3

    closing = gate(store, federation(coordinator=nothing_left)).admit(1, 0)

    assert closing is not None
    assert closing.coordinator > nothing_left
    # Readers have not seen it: their budget still has a say.
    with pytest.raises(BudgetExceededError, match="above epsilon_budget"):
        gate(store, federation(readers=nothing_left)).admit(1, 0)


def test_both_figures_are_those_of_a_release(store: Store) -> None:
    settings = federation()
    spent = attempt(store, gate(store, settings), 1, 0)

    assert figures_of_spent(settings.privacy, spent) == {
        "epsilon": spent.readers,
        "delta": DELTA,
        "coordinator_epsilon": spent.coordinator,
    }
    # One budget, one figure: a release of such a mode says what it said before.
    assert figures_of_spent(config(CENTRAL).privacy, spent) == {
        "epsilon": spent.readers,
        "delta": DELTA,
    }


def test_the_start_says_both_figures_and_whose_noise_counts() -> None:
    whole = epsilon_of([RELEASE] * 10, DELTA)

    promise, readers, coordinator, shares, alone = outlook(federation(coordinator=1.0))

    assert promise.startswith("masked: ")
    assert readers == (
        f"after round 10 epsilon against readers of releases is {whole:.3g} at delta 0.001, not "
        "amplified by sampling; epsilon_budget is 100"
    )
    assert coordinator.startswith(f"epsilon against the coordinator is {whole:.3g} by then")
    assert coordinator.endswith("coordinator_epsilon_budget is 1; the run will stop before that")
    assert shares == (
        "both figures count the noise of 7 of each sum's contributors, who are at least 10"
    )
    # Shares of variance z^2 / 7, of which one is left.
    own = msgspec.structs.replace(ATTEMPT, noise_multiplier=ATTEMPT.noise_multiplier / 7**0.5)
    assert alone.startswith("a coordinator that enrolled all other devices of a sum, or joined")
    assert (
        f"epsilon about {epsilon_of([own], DELTA, 'coordinator'):.3g} at delta 0.001 for" in alone
    )


def test_attempts_so_far_count_in_what_the_coordinator_will_have_seen(store: Store) -> None:
    settings = federation()
    asked = gate(store, settings)
    for number in (0, 1):
        attempt(store, asked, 1, number)
        abandon(store, 1, number)
    attempt(store, asked, 1, 2)

    # Three attempts are paid for, the third of them at round 1; nine rounds are to come.
    _, readers, coordinator, *_ = gate(store, settings).outlook(1, 2)

    of_readers = epsilon_of([RELEASE] * 10, DELTA)
    of_coordinator = epsilon_of([ATTEMPT] * 12, DELTA, "coordinator")
    assert f"is {of_readers:.3g} at delta" in readers
    assert f"is {of_coordinator:.3g} by then" in coordinator


def test_whose_noise_counts_belongs_to_the_terms_of_an_attempt(store: Store) -> None:
    settings = federation()
    privacy = msgspec.structs.replace(settings.privacy, honest_share=0.6)
    fewer = msgspec.structs.replace(settings, privacy=privacy)

    terms, others = (
        RoundEntries(one, store, RUN).terms_sha256(1, make_plan(one, RUN, cohort_size=12))
        for one in (settings, fewer)
    )

    assert terms != others


def test_a_start_knows_what_the_ledger_holds_before_it_admits_an_attempt(store: Store) -> None:
    settings = federation()
    asked = gate(store, settings)
    asked.outlook(1)
    known = [asked.newest]
    first = attempt(store, asked, 1, 0)
    release(store, asked, settings, 1)
    known.append(asked.newest)

    again = gate(store, settings)
    again.outlook(2)
    known.append(again.newest)

    assert known == [None, first, first]
