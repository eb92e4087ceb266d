"""Record acknowledged updates: each client's once a round, whatever happens to the process.

An update's file is on the disk before its row, and its row before the acknowledgement. No digest is
kept: a sealed update proves itself when it is opened.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, and_, exists, func, not_, select, update
from sqlalchemy.exc import IntegrityError

from server.machine.answers import Lease, Receipt
from server.records.attempts import this_attempt
from server.records.failpoints import UNARMED, Failpoint, Failpoints
from server.records.inbox import Inbox
from server.records.store import Store
from server.records.tables import attempts, clients, contributions


class ContributionError(Exception):
    """Raised when an update can no longer be acknowledged: the round or the client is gone."""


@dataclass(frozen=True, slots=True)
class StoredContribution:
    """An acknowledged update of the open round.

    ``blob`` names its file in the inbox. ``signing_sha256``, 32 bytes, is the digest of the
    certificate it was verified with. ``example_count`` is in target tokens; None under a guarantee.
    """

    receipt: Receipt
    signing_sha256: bytes
    blob: str
    blob_bytes: int
    example_count: int | None


@dataclass(frozen=True, slots=True)
class Verified:
    """A verified, complete upload at ``partial``, which is to be kept under its lease.

    ``example_count``, in target tokens and capped by the plan, is None under a guarantee.
    """

    partial: Path
    lease: Lease
    message_id: bytes
    signing_sha256: bytes
    example_count: int | None


def keep_contributions(
    store: Store,
    inbox: Inbox,
    group: Sequence[Verified],
    *,
    now: float,
    failpoints: Failpoints = UNARMED,
) -> list[Exception | None]:
    """Make uploads durable in one transaction; return for each None, or why it may not count.

    After this those with None may be acknowledged. A ``ContributionError`` says that the attempt
    ended, or that the client was revoked or contributed before; an ``OSError`` that its own file
    could not be moved.

    Raises:
        OSError: If the disk is full; none of them counts.
    """
    sizes = [_size_bytes(verified.partial) for verified in group]
    blobs = inbox.keep_all([(one.partial, one.lease, one.message_id) for one in group])
    outcomes: list[Exception | None] = [
        blob if isinstance(blob, Exception) else None for blob in blobs
    ]
    rows = {
        place: _row(verified, blob, size, now)
        for place, (verified, blob, size) in enumerate(zip(group, blobs, sizes, strict=True))
        if isinstance(blob, str)
    }
    with store.write() as connection:
        for place, row in list(rows.items()):
            outcomes[place] = _unfit(connection, row)
            if outcomes[place] is not None:
                del rows[place]
        if not _inserted(connection, list(rows.values())):
            # One of them has contributed before: each alone, so that the others count.
            for place, row in rows.items():
                if not _inserted(connection, [row]):
                    outcomes[place] = ContributionError(
                        f"{row['client']} or its slot has contributed to round "
                        f"{row['round_number']} before"
                    )
    for outcome in outcomes:
        if outcome is None:
            failpoints.reach(Failpoint.COMMITTED)
    return outcomes


def contributions_of(store: Store, round_number: int, attempt: int) -> list[StoredContribution]:
    """Return the acknowledged updates of an attempt that have not expired, in slot order."""
    with store.read() as connection:
        rows = connection.execute(
            select(contributions)
            .where(
                this_attempt(round_number, attempt, contributions),
                contributions.c.state == "committed",
            )
            .order_by(contributions.c.slot)
        ).all()
    return [_stored(row) for row in rows]


def find_receipt(store: Store, client: str, nonce: bytes) -> Receipt | None:
    """Return the receipt of a client's commit under a nonce, in any round, or None.

    An update that expired while its attempt is open does not count: the client may send it again.
    """
    may_come_again = and_(contributions.c.state == "expired", attempts.c.state == "open")
    with store.read() as connection:
        row = connection.execute(
            select(contributions)
            .join(
                attempts,
                and_(
                    attempts.c.round_number == contributions.c.round_number,
                    attempts.c.attempt == contributions.c.attempt,
                ),
            )
            .where(contributions.c.nonce == nonce, contributions.c.client == client)
            .where(not_(may_come_again))
            .order_by(contributions.c.id.desc())
        ).first()
    return None if row is None else _stored(row).receipt


def bytes_by_round(store: Store) -> dict[int, int]:
    """Return the bytes of the updates that counted, by round; under a guarantee no row is kept."""
    columns = contributions.c.round_number, func.sum(contributions.c.blob_bytes)
    counted = select(*columns).where(contributions.c.state == "aggregated")
    with store.read() as connection:
        rows = connection.execute(counted.group_by(contributions.c.round_number)).all()
    return {number: int(total) for number, total in rows}


def expire_contribution(store: Store, nonce: bytes, reason: str) -> None:
    """Take an acknowledged update out of the round; its client may send another."""
    with store.write() as connection:
        connection.execute(
            update(contributions)
            .where(contributions.c.nonce == nonce, contributions.c.state == "committed")
            .values(state="expired", reason=reason, example_count=None)
        )


# Any: a row's columns have the types of the table, here and below.
def _row(verified: Verified, blob: str, blob_bytes: int, now: float) -> dict[str, Any]:
    lease = verified.lease
    return {
        "nonce": lease.nonce,
        "round_number": lease.round_number,
        "attempt": lease.attempt,
        "client": lease.client,
        "slot": lease.slot,
        "message_id": verified.message_id,
        "signing_sha256": verified.signing_sha256,
        "blob": blob,
        "blob_bytes": blob_bytes,
        "example_count": verified.example_count,
        "committed_at": now,
        "state": "committed",
    }


def _unfit(connection: Connection, row: dict[str, Any]) -> ContributionError | None:
    """Return why an update may not count any more."""
    attempt = and_(this_attempt(row["round_number"], row["attempt"]), attempts.c.state == "open")
    client = and_(clients.c.name == row["client"], clients.c.revoked_at.is_(None))
    is_open, is_enrolled = connection.execute(
        select(exists().where(attempt), exists().where(client))
    ).one()
    if not is_open:
        return ContributionError("the attempt has ended")
    return None if is_enrolled else ContributionError(f"{row['client']} is not an enrolled client")


def _inserted(connection: Connection, rows: list[dict[str, Any]]) -> bool:
    """Insert all of them or, if one was there before, none."""
    if not rows:
        return True
    try:
        with connection.begin_nested():
            connection.execute(contributions.insert(), rows)
    except IntegrityError:
        return False
    return True


def _size_bytes(partial: Path) -> int:
    return partial.stat().st_size if partial.exists() else 0


def _stored(row: Row[Any]) -> StoredContribution:
    receipt = Receipt(
        nonce=row.nonce,
        client=row.client,
        round_number=row.round_number,
        attempt=row.attempt,
        slot=row.slot,
        message_id=row.message_id,
    )
    return StoredContribution(
        receipt, row.signing_sha256, row.blob, row.blob_bytes, row.example_count
    )
