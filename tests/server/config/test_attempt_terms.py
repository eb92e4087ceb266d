"""An attempt goes on after a restart only under the terms that it was opened under."""

import pytest

from server.budget.round_entries import RoundEntries
from server.config.plans import make_plan
from server.records.store import Store
from tests.server.config.test_guarantee_rules import CENTRAL, DRAWN, LOCAL, SAMPLED, config

RUN = "ab" * 16
PLACES = "cohort_size = 20"


def terms(store: Store, privacy: str = CENTRAL, rounds: str = DRAWN, more: str = "") -> bytes:
    federation = config(privacy, rounds=rounds, more=more)
    entries = RoundEntries(federation, store, RUN)
    return entries.terms_sha256(3, make_plan(federation, RUN, cohort_size=20))


def test_the_same_settings_make_the_same_terms(store: Store) -> None:
    assert terms(store) == terms(store)


@pytest.mark.parametrize(
    ("privacy", "rounds"),
    [
        (CENTRAL.replace("1.5", "1.6"), DRAWN),
        (CENTRAL.replace("1.0", "0.5"), DRAWN),
        (CENTRAL.replace("8.0", "9.0"), DRAWN),
        (LOCAL, DRAWN),
        # A plan does not tell a device how it came to be drawn, and the ledger must know it.
        (CENTRAL, PLACES + SAMPLED),
    ],
)
def test_what_devices_are_told_and_what_a_release_costs_belong_to_them(
    store: Store, privacy: str, rounds: str
) -> None:
    assert terms(store, privacy, rounds) != terms(store)


def test_the_same_plan_costs_less_where_fewer_are_drawn(store: Store) -> None:
    often, seldom = (PLACES + SAMPLED.replace("0.5", rate) for rate in ("0.5", "0.05"))

    assert terms(store, rounds=often) != terms(store, rounds=seldom)
