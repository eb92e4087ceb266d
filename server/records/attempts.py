"""The attempts at each round, recorded before their first lease: a restart keeps the cohort."""

from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, Table, and_, func, select, update

from privacy.accounting.ledger_chain import LedgerEntry
from server.records.ledger import write_entry
from server.records.store import Store
from server.records.tables import attempts, contributions, releases


@dataclass(frozen=True, slots=True)
class OpenAttempt:
    """The attempt that is running; rounds count from 1, attempts from 0.

    Attributes:
        members: The cohort by name; None for ``first-come``.
        base_sha256: Digest of the parameters that the cohort starts from, 32 bytes.
        opened_at: Seconds since 1970 UTC.
        deadline_ms: When it closes, milliseconds since 1970 UTC; bound into sealed updates.
        terms_sha256: Digest of its plan and of what it costs, 32 bytes; None if it was not noted.
    """

    round_number: int
    attempt: int
    members: tuple[str, ...] | None
    base_sha256: bytes
    opened_at: float
    deadline_ms: int
    terms_sha256: bytes | None = None

    def left_s(self, now: float) -> float:
        """Return the seconds from ``now``, Unix time, to the deadline; negative after it.

        They are at most the attempt's whole length: a clock that was set back makes it no longer.
        """
        deadline = self.deadline_ms / 1000
        return min(deadline - now, deadline - self.opened_at)


def open_attempt(store: Store, opened: OpenAttempt, entry: LedgerEntry | None = None) -> None:
    """Record an attempt and its entry in the privacy ledger, durably, before its first lease.

    Raises:
        LedgerError: If another entry was written meanwhile.
        sqlalchemy.exc.IntegrityError: If this attempt was recorded before.
    """
    members = None if opened.members is None else msgspec.json.encode(opened.members).decode()
    with store.write() as connection:
        if entry is not None:
            write_entry(connection, entry)
        connection.execute(
            attempts.insert().values(
                round_number=opened.round_number,
                attempt=opened.attempt,
                state="open",
                members=members,
                base_sha256=opened.base_sha256,
                opened_at=opened.opened_at,
                deadline_ms=opened.deadline_ms,
                terms_sha256=opened.terms_sha256,
                ledger_sha256=None if entry is None else entry.sha256,
            )
        )


def current_attempt(store: Store) -> OpenAttempt | None:
    """Return the attempt that is open, or None."""
    with store.read() as connection:
        row = connection.execute(select(attempts).where(attempts.c.state == "open")).first()
    return None if row is None else _opened(row)


def next_attempt(store: Store) -> tuple[int, int]:
    """Return the round and the attempt to open next: after the last release, never used before."""
    with store.read() as connection:
        last_round = connection.execute(select(func.max(releases.c.round_number))).scalar()
        round_number = (last_round or 0) + 1
        last_attempt = connection.execute(
            select(func.max(attempts.c.attempt)).where(attempts.c.round_number == round_number)
        ).scalar()
    return round_number, 0 if last_attempt is None else last_attempt + 1


def abort_attempt(
    store: Store, round_number: int, attempt: int, reason: str, *, now: float
) -> None:
    """End an attempt without a model; its acknowledged updates expire with the reason."""
    with store.write() as connection:
        end_attempt(connection, round_number, attempt, state="aborted", now=now, reason=reason)
        connection.execute(
            update(contributions)
            .where(
                this_attempt(round_number, attempt, contributions),
                contributions.c.state == "committed",
            )
            .values(state="expired", reason=reason, example_count=None)
        )


def end_attempt(
    connection: Connection,
    round_number: int,
    attempt: int,
    *,
    state: str,
    now: float,
    reason: str | None = None,
) -> None:
    """Set how an attempt ended, ``aborted`` or ``released``, and wipe its cohort."""
    connection.execute(
        update(attempts)
        .where(this_attempt(round_number, attempt))
        .values(state=state, members=None, ended_at=now, reason=reason)
    )


def this_attempt(round_number: int, attempt: int, table: Table = attempts) -> ColumnElement[bool]:
    """Return the clause that picks one row of ``attempts``, or that attempt's rows of a table."""
    return and_(table.c.round_number == round_number, table.c.attempt == attempt)


def _opened(row: Row[Any]) -> OpenAttempt:
    members = None if row.members is None else tuple(msgspec.json.decode(row.members))
    return OpenAttempt(
        row.round_number,
        row.attempt,
        members,
        row.base_sha256,
        row.opened_at,
        row.deadline_ms,
        row.terms_sha256,
    )
