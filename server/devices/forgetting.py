"""Forget a client: its certificates, its updates and what it reported.

A meaningless name remains, and its count of rounds, because the privacy budget counts the person,
who may enrol again. Released models remain too: what they have learnt cannot be taken back, which
is why some noise modes give a guarantee.
"""

from sqlalchemy import Connection, delete, select, update

from server.devices.clients import withdraw_rights
from server.devices.device_certificates import delete_certificates
from server.records.inbox import Inbox
from server.records.store import Store
from server.records.tables import clients, contributions, tokens

REASON = "the client was forgotten"


def forget_client(store: Store, inbox: Inbox, client: str, *, now: float) -> int:
    """Revoke a client and delete what is known of it; return how many waiting updates that were.

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
