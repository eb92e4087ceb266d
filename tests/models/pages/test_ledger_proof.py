"""A ledger on a page: what it spent, and the command by which a reader finds the same."""

import html
import re
import shlex
from pathlib import Path

import pytest

from models.pages.ledger_proof import proof
from privacy.accounting.accountant import epsilon_of, reports
from privacy.accounting.budget import PrivacyBudget
from privacy.accounting.events import GaussianRelease
from privacy.accounting.ledger_chain import LedgerEntry, next_entry
from privacy.accounting.ledger_file import LedgerFile, export_ledger
from privacy.cli import main as privacy_main

RUN = "ab" * 16
EVENT = GaussianRelease(noise_multiplier=1.0, adjacency="zero-out", sampling=None)
DAY_MS = 86_400_000


def ledger_of(rounds: int) -> LedgerFile:
    entries: list[LedgerEntry] = []
    for number in range(1, rounds + 1):
        # At twenty-five to six in the morning of each day since 1970.
        at = number * DAY_MS + 20_100_000
        last = entries[-1] if entries else None
        entries.append(next_entry(last, run=RUN, round_number=number, event=EVENT, now_ms=at))
    return LedgerFile(RUN, entries)


def told(rounds: int, *, budget: float) -> str:
    spent = reports([EVENT] * rounds, 1e-3)
    budgets = [PrivacyBudget(epsilon_budget=budget, delta=1e-3)]
    export = ("sotto-server", "ledger", "a folder", "--json")
    parts = proof(ledger_of(rounds), spent, budgets, path="ledger.json", export=export)
    return "".join(parts)


def test_a_reader_who_types_what_the_page_says_finds_its_epsilon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = told(2, budget=20.0)
    (command,) = re.findall("<pre><code>(.*)</code></pre>", page, re.DOTALL)
    export, check = html.unescape(command).splitlines()
    (tmp_path / "ledger.json").write_text(export_ledger(RUN, ledger_of(2).entries))
    monkeypatch.chdir(tmp_path)

    assert export == "sotto-server ledger 'a folder' --json > ledger.json"
    assert privacy_main(shlex.split(check)[1:]) == 0

    epsilon = f"epsilon {epsilon_of([EVENT] * 2, 1e-3):.4g} at delta 0.001"
    assert epsilon in page
    assert epsilon in capsys.readouterr().out
    assert "of at most 20 promised: kept" in page


def test_equal_entries_are_one_row_with_their_days_and_no_hour() -> None:
    page = told(3, budget=20.0)

    assert "1 to 3</td>" in page
    assert "1970-01-02 to 1970-01-04" in page
    assert "05:35" not in page


def test_more_than_was_promised_is_said() -> None:
    assert "NOT kept: more was spent than promised" in told(2, budget=1.0)


def test_nothing_released_is_nothing_to_check() -> None:
    page = told(0, budget=1.0)

    assert "nothing was released" in page
    assert "<pre>" not in page
