"""``sotto-privacy`` on sums under masks: each figure names the onlooker whom it holds against."""

import math
from pathlib import Path

import pytest

from privacy.accounting.events import (
    GaussianRelease,
    LocalRelease,
    MaskedAttempt,
    MaskedRelease,
    PrivacyEvent,
)
from privacy.accounting.ledger_chain import LedgerEntry, next_entry
from privacy.accounting.ledger_file import export_ledger
from privacy.cli import main
from tests.privacy.accounting.test_budget_cli import CENTRAL, RUN, figures, plan

MASKED = CENTRAL.replace('"central"', '"masked"') + (
    "coordinator_epsilon_budget = 4.0\nhonest_share = 0.7\n"
)
QUORUM = "cohort_size = 120\nquorum = 100"
ATTEMPT: PrivacyEvent = MaskedAttempt(
    noise_multiplier=2.0, adjacency="zero-out", honest_contributors=70
)
RELEASE: PrivacyEvent = MaskedRelease(
    noise_multiplier=2.0, adjacency="zero-out", honest_contributors=70
)


def ledger(folder: Path, events: list[PrivacyEvent]) -> str:
    entries: list[LedgerEntry] = []
    for event in events:
        last = entries[-1] if entries else None
        entries.append(next_entry(last, run=RUN, round_number=1, event=event, now_ms=1000))
    path = folder / "ledger.json"
    path.write_text(export_ledger(RUN, entries))
    return str(path)


@pytest.mark.slow
def test_a_ledger_is_counted_for_each_onlooker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ledger(tmp_path, [ATTEMPT] * 12 + [ATTEMPT, RELEASE] * 4)

    found = figures(capsys, "epsilon", "--ledger", path, "--delta", "1e-6")

    # Four releases at z = 2 are one at z = 1, and sixteen attempts one at z = 1/2: 4.8866 and
    # 10.9972 at 1e-6 by Balle and Wang.
    assert found["epsilon"] == pytest.approx(4.8866, abs=1e-3)
    assert found["coordinator_epsilon"] == pytest.approx(10.9972, abs=3e-3)
    # An attempt shows readers nothing, and is no release.
    assert found["rounds"] == 4
    assert main(["epsilon", "--ledger", path, "--delta", "1e-6"]) == 0
    told = capsys.readouterr().out
    assert "over 4 releases" in told
    assert "that is against readers of releases; against the coordinator 11" in told


def test_noise_of_the_coordinator_has_no_figure_against_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    event = GaussianRelease(noise_multiplier=2.0, adjacency="zero-out", sampling=None)
    path = ledger(tmp_path, [event] * 4)

    assert main(["epsilon", "--ledger", path, "--delta", "1e-6"]) == 0
    assert (
        "that is against readers of releases; nothing is promised against the coordinator, which "
        "sees updates before any noise"
    ) in capsys.readouterr().out
    assert figures(capsys, "epsilon", plan(tmp_path, CENTRAL))["coordinator_epsilon"] is None


def test_noise_of_each_device_has_the_same_figure_against_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ledger(tmp_path, [LocalRelease(noise_multiplier=2.0)])

    found = figures(capsys, "epsilon", "--ledger", path, "--delta", "1e-6")

    assert found["coordinator_epsilon"] == found["epsilon"]


def test_a_plan_is_held_against_both_budgets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["epsilon", plan(tmp_path, MASKED, QUORUM)]) == 0

    # A hundred rounds at z = 10 are one at z = 1, 4.8866 at 1e-6.
    told = capsys.readouterr().out
    assert "against the coordinator 4.887" in told
    assert "within epsilon_budget 8 of the plan" in told
    assert "above coordinator_epsilon_budget 4 of the plan" in told


@pytest.mark.slow
def test_explain_says_both_figures_and_what_a_share_of_the_noise_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = plan(tmp_path, MASKED, QUORUM)

    found = figures(capsys, "explain", path)

    assert found["coordinator_epsilon"] == pytest.approx(found["epsilon"])
    assert found["rounds_that_fit"] == 100
    # The coordinator's budget ends the run first.
    assert found["attempts_that_fit"] < 100
    assert (found["least_contributors"], found["honest_contributors"]) == (100, 70)
    # S = C sqrt(1.1) with C = 1; 70 shares together have z S.
    assert found["sensitivity"] == pytest.approx(math.sqrt(1.1))
    assert found["share_noise_std"] * math.sqrt(70) == pytest.approx(10 * math.sqrt(1.1))
    # A hundred shares on the sum of a hundred clients; with κ = 0.5 each weighs e^-0.5 or more.
    least = found["share_noise_std"] / 10
    assert found["least_released_noise_std"] == pytest.approx(least)
    assert found["most_released_noise_std"] == pytest.approx(least * math.exp(0.5))
    assert main(["explain", path]) == 0
    told = capsys.readouterr().out
    assert "against readers of releases." in told
    assert "and an attempt that comes to nothing as much as a round. Its budget is 4." in told
    assert f"The run stops after {found['attempts_that_fit']} attempts" in told


def test_a_plan_without_a_quorum_has_no_sum_whose_noise_could_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["epsilon", plan(tmp_path, MASKED)]) == 1
    assert 'rounds.quorum must be given with privacy.mode = "masked"' in capsys.readouterr().err


def test_noise_under_masks_is_the_least_that_epsilon_confirms(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = ["--mode", "masked", "--rounds", "16", "--delta", "1e-6"]

    z = figures(capsys, "noise", "--target-epsilon", "4.8866", *run)["noise_multiplier"]

    # Sixteen at z = 4 are one at z = 1.
    assert z == pytest.approx(4, rel=1e-3)
    found = figures(capsys, "epsilon", "--noise-multiplier", str(z), *run)
    assert found["coordinator_epsilon"] == found["epsilon"] <= 4.8866


def test_a_share_has_no_sampling(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["epsilon", "--mode", "masked", "--sampling-rate", "0.1"])
    assert "--sampling-rate has no effect for sums under masks" in capsys.readouterr().err
