"""The page of a federation: what it tells, and what it holds back under a guarantee."""

import re

import pytest

from server.operating.page import federation_page
from tests.server.operating.account_scene import account, release


def test_refusals_stand_beside_what_to_do_by_how_often() -> None:
    rounds = [
        release(1, refused_disk=1, refused_floor_epsilon=2, perplexity=9.0),
        release(2, refused_disk=2, perplexity=8.0),
    ]
    page = federation_page(account(*rounds, refusals={"disk": 1, "out_of_memory": 4}))

    rows = re.findall(r"<tr><td><code>(\w+)</code></td>(.*?)</tr>", page)
    figures = {code: re.findall(r'"figure">(\w+)<', row) for code, row in rows}
    assert figures == {
        "disk": ["3", "1"],
        "floor_epsilon": ["2", "0"],
        "out_of_memory": ["0", "4"],
    }
    assert "their owners make room" in dict(rows)["disk"]


def test_models_are_named_with_their_digests_and_the_start() -> None:
    page = federation_page(account(*(release(number) for number in range(1, 15))))

    # The newest, the best and the start; of the others the newest nine.
    assert f"round 14, SHA-256 of its parameters <code>{14:064x}</code>" in page
    assert f"round 1, SHA-256 of its parameters <code>{1:064x}</code>" in page
    assert "drawn from the seed" in page
    assert "1970-01-01, files deleted since" in page


def test_figures_bytes_and_what_was_started_over_are_told() -> None:
    page = federation_page(account(release(1, perplexity=9.0), release(2, perplexity=None)))

    assert "2 rounds from 1970-01-02 to 1970-01-03; none was started over" in page
    assert "1,002 in round 2" not in page  # Four digits: as they are.
    assert "1002 in round 2" in page
    assert "1 of 2 values are not finite" in page
    assert "contributions 7" in page
    assert "nothing bounds what a model tells of one person" in page


def test_one_round_is_no_rounds() -> None:
    assert "<p>1 round on 1970-01-02; none" in federation_page(account(release(1)))


def test_a_federation_without_rounds_says_so() -> None:
    page = federation_page(account())

    assert "No round was released yet" in page
    assert "<svg" not in page


@pytest.mark.parametrize("mode", ["local", "central"])
def test_under_a_guarantee_no_count_of_the_drawn_and_no_time_of_a_round_is_told(mode: str) -> None:
    # Under local a release holds counts; none of them leaves with the page.
    counts = {"contributions": 7, "clipped": 3, "closing_s": 0.777, "screened_norm": 6}
    figures = {**counts, "refused_disk": 8, "perplexity": 1234.0, "epsilon": 0.5}
    rounds = [release(1, **figures), release(2, **{**figures, "perplexity": 1200.0})]
    page = federation_page(account(*rounds, mode=mode, refusals={}))

    assert "best 1200 in round 2" in page
    for told in (
        "contributions",
        "clipped 3",
        "<b>clipped",
        "disk",
        "duration",
        "screened",
        "closing",
        "0.777",
        "31.25",
        "05:00",
    ):
        assert told not in page
    assert not re.search(r"\b(leased|committed|9 |5 of)", page)
    assert "of at most 50 promised: kept" in page
    assert page.count("eld back") == 2


def test_text_of_a_device_or_a_name_is_never_markup() -> None:
    hostile = '<img src=x onerror="alert(1)">'
    versions = {f"{hostile}": 1}
    found = account(
        release(1, **{f"refused_{hostile}": 1, hostile: 2.0, f"<b>{hostile}": 3.5}),
        release(2, **{f"refused_{hostile}": 2, hostile: 2.0, f"<b>{hostile}": 4.5}),
        folder=f"/srv/{hostile}",
        device_versions=versions,
        shortage=hostile,
        refusals={hostile: 1},
    )
    page = federation_page(found)

    assert "<img" not in page
    assert "<b>&lt;b&gt;" in page
