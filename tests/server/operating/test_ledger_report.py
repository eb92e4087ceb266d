"""``sotto-server ledger`` tells what was spent against each onlooker, by name."""

import json

import pytest

from privacy.accounting.accountant import epsilon_of, reports
from privacy.accounting.events import GaussianRelease, MaskedAttempt, MaskedRelease, PrivacyEvent
from privacy.accounting.ledger_file import LedgerFile
from server.operating.ledger_report import ledger_as_json, print_ledger

ATTEMPT = MaskedAttempt(noise_multiplier=2.0, adjacency="zero-out", honest_contributors=7)
RELEASE = MaskedRelease(noise_multiplier=2.0, adjacency="zero-out", honest_contributors=7)
CENTRAL = GaussianRelease(noise_multiplier=2.0, adjacency="zero-out", sampling=None)
DELTA = 1e-5


def spent(events: list[PrivacyEvent]) -> str:
    return ledger_as_json(LedgerFile("ab" * 16, []), reports(events, DELTA))


def test_what_is_exported_has_both_figures() -> None:
    events: list[PrivacyEvent] = [ATTEMPT, ATTEMPT, RELEASE]

    figures = json.loads(spent(events))["spent"]

    assert figures["onlooker"] == "readers"
    assert figures["epsilon"] == epsilon_of(events, DELTA)
    assert figures["coordinator_epsilon"] == epsilon_of(events, DELTA, "coordinator")
    assert json.loads(spent([CENTRAL]))["spent"]["coordinator_epsilon"] is None


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (RELEASE, "against readers of releases and 0 against the coordinator, at delta 1e-05"),
        (CENTRAL, "nothing is promised against the coordinator, which sees updates before any"),
    ],
    ids=["masked", "central"],
)
def test_what_is_printed_names_the_onlookers(
    event: PrivacyEvent, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_ledger([], reports([event], DELTA))

    printed = capsys.readouterr().out
    assert f"epsilon is {epsilon_of([event], DELTA):.4g} against readers of releases" in printed
    assert said in printed
