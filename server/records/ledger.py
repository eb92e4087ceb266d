"""The privacy ledger, whose entries are written in the transaction of their release or attempt."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Row, select

from privacy.accounting.events import GaussianRelease, PrivacyEvent, read_event
from privacy.accounting.ledger_chain import LedgerEntry, LedgerError, next_entry, verify_chain
from server.records.store import Store
from server.records.tables import ledger


def prepare_entry(
    store: Store, event: PrivacyEvent, *, run: str, round_number: int, now: float
) -> LedgerEntry:
    """Return what an event will add to the ledger, before anything is written."""
    with store.read() as connection:
        last = _last(connection)
    return next_entry(
        last, run=run, round_number=round_number, event=event, now_ms=round(now * 1000)
    )


def write_entry(connection: Connection, entry: LedgerEntry) -> None:
    """Write a prepared entry, in the transaction that records what it pays for.

    Raises:
        LedgerError: If another entry was written meanwhile.
    """
    last = _last(connection)
    if last is not None and entry.previous_sha256 != last.sha256:
        raise LedgerError(
            f"ledger entry {entry.sequence} must follow the newest, which is {last.sequence} by now"
        )
    connection.execute(ledger.insert().values(entry._asdict()))


def is_newest(connection: Connection, entry: LedgerEntry) -> bool:
    """Return whether the ledger ends with an entry already."""
    last = _last(connection)
    return last is not None and last.sha256 == entry.sha256


def is_drawn_by_coins(entry: LedgerEntry) -> bool:
    """Return whether secret coins drew the cohort of the entry's release."""
    event = read_event(entry.event)
    return isinstance(event, GaussianRelease) and event.sampling is not None


def ledger_entries(store: Store) -> list[LedgerEntry]:
    """Return every entry as it is stored, oldest first, unchecked."""
    with store.read() as connection:
        return _entries(connection.execute(select(ledger).order_by(ledger.c.sequence)))


def ledger_events(store: Store, run: str) -> list[PrivacyEvent]:
    """Return every event of the run, oldest first, after checking the chain.

    Raises:
        LedgerError: If the ledger was changed, or belongs to another run.
    """
    return verify_chain(ledger_entries(store), run=run)


def _last(connection: Connection) -> LedgerEntry | None:
    rows = connection.execute(select(ledger).order_by(ledger.c.sequence.desc()).limit(1))
    return next(iter(_entries(rows)), None)


# Any: the row's types are the table's.
def _entries(rows: Iterable[Row[Any]]) -> list[LedgerEntry]:
    return [LedgerEntry(**row._mapping) for row in rows]
