from collections.abc import Iterator

import pytest
from sqlalchemy import delete, update

from privacy.accounting.events import GaussianRelease
from privacy.accounting.ledger_chain import LedgerEntry, LedgerError, LedgerOfAnotherRunError
from server.config.store import StoreSettings
from server.records.ledger import ledger_entries, ledger_events, prepare_entry, write_entry
from server.records.store import Store, open_store
from server.records.tables import ledger
from tests.server.both_stores import on_both_stores

RUN, OTHER_RUN = "ab" * 16, "cd" * 16
NOISED = GaussianRelease(noise_multiplier=1.5, adjacency="zero-out", sampling=None)


@pytest.fixture
def store(store_settings: StoreSettings) -> Iterator[Store]:
    opened = open_store(store_settings)
    yield opened
    opened.close()


def append(store: Store, count: int) -> list[LedgerEntry]:
    entries = []
    for number in range(1, count + 1):
        entry = prepare_entry(store, NOISED, run=RUN, round_number=number, now=number)
        with store.write() as connection:
            write_entry(connection, entry)
        entries.append(entry)
    return entries


@on_both_stores
def test_entries_come_back_as_they_were_written_and_chain(store: Store) -> None:
    written = append(store, 3)

    assert ledger_entries(store) == written
    assert [entry.sequence for entry in written] == [1, 2, 3]
    assert [entry.recorded_ms for entry in written] == [1000, 2000, 3000]
    assert [entry.previous_sha256 for entry in written[1:]] == [
        entry.sha256 for entry in written[:2]
    ]
    assert ledger_events(store, RUN) == [NOISED] * 3


@on_both_stores
def test_an_entry_of_a_transaction_that_failed_is_not_there(store: Store) -> None:
    append(store, 1)

    entry = prepare_entry(store, NOISED, run=RUN, round_number=2, now=2)

    with pytest.raises(RuntimeError, match="no release"), store.write() as connection:
        write_entry(connection, entry)
        raise RuntimeError("no release")

    assert len(ledger_entries(store)) == 1


@on_both_stores
def test_an_edited_entry_is_found(store: Store) -> None:
    append(store, 3)

    with store.write() as connection:
        connection.execute(update(ledger).where(ledger.c.sequence == 2).values(round_number=7))

    with pytest.raises(LedgerError, match="ledger entry 2 was changed"):
        ledger_events(store, RUN)


@on_both_stores
def test_a_dropped_entry_is_found(store: Store) -> None:
    append(store, 3)

    with store.write() as connection:
        connection.execute(delete(ledger).where(ledger.c.sequence == 1))

    with pytest.raises(LedgerError, match="ledger entry 1 is missing"):
        ledger_events(store, RUN)


@on_both_stores
def test_the_ledger_of_another_run_is_told_apart(store: Store) -> None:
    append(store, 1)

    with pytest.raises(LedgerOfAnotherRunError):
        ledger_events(store, OTHER_RUN)


@on_both_stores
def test_an_empty_ledger_holds_nothing(store: Store) -> None:
    assert ledger_events(store, RUN) == []


@on_both_stores
def test_an_entry_that_another_one_overtook_is_refused(store: Store) -> None:
    overtaken = prepare_entry(store, NOISED, run=RUN, round_number=1, now=1)
    append(store, 2)

    with pytest.raises(LedgerError, match="must follow the newest"), store.write() as connection:
        write_entry(connection, overtaken)
