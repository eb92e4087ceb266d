"""Forget a client: its certificates, its updates and what it reported.

There remain a name that says nothing, the count of rounds it took part in (the privacy budget
counts the person, who may enrol again), and the released models: what a model has learnt cannot be
taken back, which is what the noise modes with a guarantee are for.
"""

from sqlalchemy import Connection, delete, select, update

from server.devices.clients import withdraw_rights
from server.devices.device_certificates import delete_certificates
from server.records.inbox import Inbox
from server.records.store import Store
from server.records.tables import clients, contributions, tokens

REASON = "the client was forgotten"


def forget_client(store: Store, inbox: Inbox, client: str, *, now: float) -> int:
    """Revoke a client and delete what is known of it; repeating does no harm.

    Args:
        now: Seconds since 1970 UTC.

    Returns:
        How many of its updates, acknowledged and not yet aggregated, were deleted.

    Raises:
        UnknownClientError: If nobody of that name is enrolled or invited.
    """
    with store.write() as connection:
        withdraw_rights(connection, client, now)
        blobs = _expire_waiting(connection, client)
        connection.execute(
            delete(contributions).where(
                contributions.c.client == client, contributions.c.reason.is_distinct_from(REASON)
            )
        )
        delete_certificates(connection, client)
        # One that nobody used tells of nobody, and keeps its name from being given again.
        connection.execute(
            delete(tokens).where(tokens.c.client == client, tokens.c.used_at.is_not(None))
        )
        connection.execute(
            update(clients)
            .where(clients.c.name == client)
            .values(
                enrolled_at=0.0,
                revoked_at=now,
                forgotten_at=now,
                # Counted as if they had been aggregated: a close may have read them already.
                participation_count=clients.c.participation_count + len(blobs),
            )
        )
    for blob in blobs:
        inbox.path(blob).unlink(missing_ok=True)
    return len(blobs)


def _expire_waiting(connection: Connection, client: str) -> list[str]:
    waiting = (contributions.c.client == client, contributions.c.state == "committed")
    blobs = connection.execute(select(contributions.c.blob).where(*waiting)).scalars().all()
    connection.execute(
        update(contributions)
        .where(*waiting)
        .values(state="expired", reason=REASON, example_count=None)
    )
    return [str(blob) for blob in blobs]
