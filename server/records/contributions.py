"""Record acknowledged updates: each client's once a round, whatever happens to the process.

An update's file is on the disk before its row, and its row before the acknowledgement. No digest is
kept: a sealed update proves itself when it is opened.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, exists, not_, select, update
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


def keep_contribution(
    store: Store,
    inbox: Inbox,
    partial: Path,
    lease: Lease,
    *,
    message_id: bytes,
    signing_sha256: bytes,
    example_count: int | None,
    now: float,
    failpoints: Failpoints = UNARMED,
) -> None:
    """Make a verified, complete upload at ``partial`` durable; after this it may be acknowledged.

    ``example_count``, in target tokens and capped by the plan, is None under a guarantee.

    Raises:
        ContributionError: If the attempt ended, or the client was revoked or contributed before.
        OSError: If the disk is full.
    """
    size = partial.stat().st_size
    blob = inbox.keep(partial, lease, message_id)
    row = {
        "nonce": lease.nonce,
        "round_number": lease.round_number,
        "attempt": lease.attempt,
        "client": lease.client,
        "slot": lease.slot,
        "message_id": message_id,
        "signing_sha256": signing_sha256,
        "blob": blob,
        "blob_bytes": size,
        "example_count": example_count,
        "committed_at": now,
        "state": "committed",
    }
    _insert(store, row, lease)
    failpoints.reach(Failpoint.COMMITTED)


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


def expire_contribution(store: Store, nonce: bytes, reason: str) -> None:
    """Take an acknowledged update out of the round; its client may send another."""
    with store.write() as connection:
        connection.execute(
            update(contributions)
            .where(contributions.c.nonce == nonce, contributions.c.state == "committed")
            .values(state="expired", reason=reason, example_count=None)
        )


# Any: a row's columns have the types of the table, here and below.
def _insert(store: Store, row: dict[str, Any], lease: Lease) -> None:
    attempt = and_(this_attempt(lease.round_number, lease.attempt), attempts.c.state == "open")
    client: ColumnElement[bool] = and_(
        clients.c.name == lease.client, clients.c.revoked_at.is_(None)
    )
    try:
        with store.write() as connection:
            is_open, is_enrolled = connection.execute(
                select(exists().where(attempt), exists().where(client))
            ).one()
            if not is_open:
                raise ContributionError("the attempt has ended")
            if not is_enrolled:
                raise ContributionError(f"{lease.client} is not an enrolled client")
            connection.execute(contributions.insert().values(row))
    except IntegrityError:
        raise ContributionError(
            f"{lease.client} or its slot has contributed to round {lease.round_number} before"
        ) from None


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
