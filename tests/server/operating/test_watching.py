"""``sotto-server watch`` draws a federation as it goes."""

import math

import pytest
from rich.console import Console

from server.cli import main
from server.operating.report import StatusReport
from server.operating.watching import Promise, Seen, drawn, last_day, sparkline
from server.releases.publishing import ReleaseSummary

DAY_S = 86_400.0
OPEN = Promise({}, last_round=100, hides_cohort=False)
GUARDED = Promise({"readers": 2.0}, last_round=100, hides_cohort=True)


def release(number: int, *, at: float = 0.0, **metrics: float) -> ReleaseSummary:
    return ReleaseSummary(number, 0, bytes(32), 4, 1.0, dict(metrics), True, recorded_at=at)


def report(**facts: object) -> StatusReport:
    told: dict[str, object] = {
        "run": "ab" * 16,
        "is_running": True,
        "phase": "open",
        "round_number": 7,
        "is_paused": False,
        "guarantee": "a promise [in brackets]",
        "personalisation": "global",
        "growth": "",
        "enrolled_clients": 40,
        "connected_clients": 31,
        "leased_clients": 9,
        "committed_clients": 5,
        "remaining_s": 42.0,
        "software_version": "0.1.0",
        "certificates_end_at": "",
        "issuer_ends_at": "",
    }
    return StatusReport(**(told | facts))  # type: ignore[arg-type]


def shown(seen: Seen, promise: Promise) -> str:
    console = Console(width=120, record=True)
    with console.capture() as captured:
        console.print(drawn(seen, promise))
    return captured.get()


def test_an_open_round_is_drawn_as_it_fills() -> None:
    rounds = [release(number, perplexity=100.0 - number) for number in range(1, 7)]
    text = shown(Seen(report(device_versions={"0.1.0": 30, "0.0.9": 1}), rounds), OPEN)

    assert "round 7 of 100 · open · 42 s left" in text
    assert "5 of 9" in text
    assert "31 of 40 connected" in text
    assert "0.0.9 on 1, 0.1.0 on 30" in text
    # From 99 down to 94 in six even steps of a scale of eight.
    assert "█▇▅▄▂▁" in text
    assert "94 now" in text
    assert "a promise [in brackets]" in text


def test_a_refusal_stands_beside_what_to_do_about_it() -> None:
    refusals = {"floor_epsilon": 3, "out_of_memory": 8, "never_heard_of": 1}
    lines = shown(Seen(report(refusals=refusals), []), OPEN).splitlines()
    told = [line.split() for line in lines if line.startswith(tuple(refusals))]

    assert [words[:2] for words in told] == [
        ["out_of_memory", "8"],
        ["floor_epsilon", "3"],
        ["never_heard_of", "1"],
    ]
    assert "a smaller model" in " ".join(told[0])
    assert "floor.toml" in " ".join(told[1])
    assert "doctor" in " ".join(told[2])


def test_under_a_guarantee_the_budget_is_drawn_and_no_count_of_the_drawn() -> None:
    rounds = [release(number, at=number * DAY_S) for number in (1, 2, 3)]
    text = shown(Seen(report(epsilons={"readers": 0.5}), rounds), GUARDED)

    assert "0.5 of 2" in text
    # Round 100 comes 97 days after the third day since 1970.
    assert "the budget's last round is on 1970-04-11" in text
    assert "5 of 9" not in text


def test_how_long_a_sum_takes_is_shown_only_where_it_may_be_known() -> None:
    assert "· closing" in shown(Seen(report(phase="closing"), []), OPEN)
    guarded = shown(Seen(report(phase="closing"), []), GUARDED)
    assert "· open" in guarded
    assert "closing" not in guarded


def test_how_long_the_newest_round_took_is_told_where_it_may_be_known() -> None:
    took = "round 6 took 1 s, 0.25 s of that to sum it"

    assert took in shown(Seen(report(), [release(6, closing_s=0.25)]), OPEN)
    assert "took" not in shown(Seen(report(), [release(6, closing_s=0.25)]), GUARDED)


def test_a_run_whose_models_nobody_measures_says_how_to_have_it_done() -> None:
    assert "figure" not in shown(Seen(report(), []), OPEN)
    assert "[evaluation]" in shown(Seen(report(), [release(1)]), OPEN)
    assert "[evaluation]" not in shown(Seen(report(), [release(1, accuracy=0.5)]), OPEN)


@pytest.mark.parametrize(
    ("facts", "title"),
    [
        ({"phase": "finished", "round_number": 101}, "100 of 100 rounds released · finished"),
        ({"phase": "stopped", "round_number": 101}, "100 of 100 rounds released · stopped"),
        ({"phase": "stopped", "round_number": 100}, "round 100 of 100 · stopped"),
    ],
)
def test_a_run_that_is_over_names_no_round_beyond_the_last(
    facts: dict[str, object], title: str
) -> None:
    rounds = [release(100)]
    assert title in shown(Seen(report(remaining_s=0.0, **facts), rounds), OPEN)


def test_a_run_that_its_budget_ended_tells_the_rounds_that_there_were() -> None:
    over = report(phase="finished", round_number=3, remaining_s=0.0)
    assert "2 of 100 rounds released · finished" in shown(Seen(over, [release(2)]), GUARDED)


@pytest.mark.parametrize(
    ("values", "drawing"),
    [
        ([], ""),
        ([math.nan], ""),
        ([1.0, 1.0], "▁▁"),
        ([0.0, math.nan, 7.0], "▁ █"),
        ([9.0] * 40 + [0.0, 7.0] * 30, "▁█" * 30),
    ],
)
def test_a_sparkline_has_a_block_a_value(values: list[float], drawing: str) -> None:
    assert sparkline(values) == drawing


def test_no_day_is_told_before_there_is_a_pace() -> None:
    assert last_day([], 10) is None
    assert last_day([release(1, at=0.0)], 10) is None
    assert last_day([release(1, at=0.0), release(2, at=1e30)], 10) is None
    assert last_day([release(9, at=0.0), release(10, at=5.0)], 10) is None


def test_where_there_is_no_federation_it_says_so(
    tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", str(tmp_path)]) == 1
    assert "cannot read" in capsys.readouterr().err
