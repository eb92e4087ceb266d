"""A ledger is read offline from its export; the store's side is tested with the store."""

import json
import sqlite3
from pathlib import Path

import pytest

from privacy.accounting.events import LocalRelease
from privacy.accounting.ledger_chain import LedgerEntry, LedgerError, next_entry, verify_chain
from privacy.accounting.ledger_file import export_ledger, read_ledger

RUN = "00112233445566778899aabbccddeeff"


def ledger(count: int) -> list[LedgerEntry]:
    entries: list[LedgerEntry] = []
    for number in range(1, count + 1):
        entries.append(
            next_entry(
                entries[-1] if entries else None,
                run=RUN,
                round_number=number,
                event=LocalRelease(noise_multiplier=2.0),
                now_ms=number,
            )
        )
    return entries


def test_an_export_is_read_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    path.write_text(export_ledger(RUN, ledger(3)))

    read = read_ledger(path)

    assert read.run == RUN
    assert read.entries == ledger(3)
    assert len(verify_chain(read.entries, run=read.run)) == 3


def test_an_export_is_json_that_people_can_read(tmp_path: Path) -> None:
    export = json.loads(export_ledger(RUN, ledger(1)))

    assert export["run"] == RUN
    assert json.loads(export["entries"][0]["event"]) == {
        "event": "local",
        "noise_multiplier": 2.0,
    }
    assert export["entries"][0]["sha256"] == ledger(1)[0].sha256.hex()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"format": 1', '"format": 2', "must have ledger format 1, got 2"),
        ('"format": 1', '"format": 1, "extra": 1', "unknown field"),
        (RUN, "00", "run of a ledger must be 32 hex digits, got '00'"),
        (RUN, "x" * 32, "run of a ledger must be 32 hex digits"),
        ('"sequence": 1', '"sequence": "1"', "is no ledger"),
        ('"sha256": "', '"sha256": "zz', "is no ledger"),
    ],
)
def test_a_file_that_is_no_export_is_refused(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    text = export_ledger(RUN, ledger(1))
    assert old in text
    path = tmp_path / "ledger.json"
    path.write_text(text.replace(old, new))

    with pytest.raises(LedgerError, match=words):
        read_ledger(path)


def test_a_store_without_a_ledger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as store:
        store.execute("CREATE TABLE things (name TEXT)")
    store.close()

    with pytest.raises(LedgerError, match="holds no ledger of a coordinator"):
        read_ledger(path)


def test_a_missing_file_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_ledger(tmp_path / "none.json")
