"""The privacy ledger, whose entries are written in the transaction of what they pay for.

The row of that release or attempt holds the digest of its entry, and so does the release's signed
record. A chain alone does not show that its newest entries were cut off: these digests do.
"""

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, select, type_coerce, union_all, update
from sqlalchemy.types import NullType

from privacy.accounting.events import GaussianRelease, PrivacyEvent, read_event
from privacy.accounting.ledger_chain import (
    LedgerEntry,
    LedgerError,
    NotedHead,
    check_end,
    check_types,
    next_entry,
    verify_chain,
)
from server.records.store import Store
from server.records.tables import attempts, ledger, releases


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
        return _entries(connection.execute(_ROWS.order_by(ledger.c.sequence)))


def ledger_events(store: Store, run: str, published: NotedHead | None = None) -> list[PrivacyEvent]:
    """Return every event of the run, oldest first, after checking the ledger.

    It must be a whole chain and hold every digest that the store notes beside it, and the one of
    the newest release on the disk, ``published``.

    Raises:
        LedgerError: If the ledger was changed, lost its end or belongs to another run.
    """
    # Noted first: what is recorded between the two reads is in the ledger that is read after it.
    with store.read() as connection:
        noted = [NotedHead(*row) for row in connection.execute(_NOTED)]
    entries = ledger_entries(store)
    events = verify_chain(entries, run=run)
    check_end(entries, noted if published is None else [*noted, published])
    return events


def note_evaluation(connection: Connection, round_number: int, entry: LedgerEntry) -> None:
    """Write the entry of a release's evaluation, and note it with the release."""
    write_entry(connection, entry)
    connection.execute(
        update(releases)
        .where(releases.c.round_number == round_number)
        .values(ledger_sha256=entry.sha256)
    )


# As the driver reads them: an edited row may hold text, or nothing, for bytes.
_ROWS = select(*(type_coerce(ledger.c[name], NullType()) for name in LedgerEntry._fields))
_NOTED = union_all(
    *(
        select(table.c.round_number, table.c.ledger_sha256).where(
            table.c.ledger_sha256.is_not(None)
        )
        for table in (releases, attempts)
    )
)


def _last(connection: Connection) -> LedgerEntry | None:
    newest = _ROWS.order_by(ledger.c.sequence.desc()).limit(1)
    return next(iter(_entries(connection.execute(newest))), None)


def _entries(rows: Iterable[Sequence[object]]) -> list[LedgerEntry]:
    return [check_types(tuple(row)) for row in rows]
