"""Know every enrolled device. Every call asks here, so a revocation counts from the next one."""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select, update

from protos.refusals import RefusalCode
from server.devices.device_certificates import (
    StoredCertificate,
    add_certificates,
    delete_certificates,
)
from server.records.store import Store
from server.records.tables import certificates, clients, tokens


class UnknownClientError(LookupError):
    """Raised when an operator names a client that does not exist."""


class CallerError(Exception):
    """Raised when a certificate gives no right to call; ``code`` says why, stably."""

    def __init__(self, code: RefusalCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class ClientSummary:
    """The facts that the operator may know of a client.

    Times are seconds since 1970 UTC. ``participation_count``, the rounds whose model holds an
    update of this client, is None where a guarantee hides it.
    """

    name: str
    enrolled_at: float
    revoked_at: float | None
    participation_count: int | None


def enrol_client(
    connection: Connection, client: str, given: Iterable[StoredCertificate], now: float
) -> None:
    """Add a client, or replace the certificates of a known one and lift its revocation."""
    row = {"enrolled_at": now, "revoked_at": None, "forgotten_at": None}
    known = connection.execute(update(clients).where(clients.c.name == client).values(row))
    if not known.rowcount:
        connection.execute(clients.insert().values(name=client, **row))
    delete_certificates(connection, client)
    add_certificates(connection, client, given, now)


def renew_certificates(
    store: Store, client: str, given: Iterable[StoredCertificate], *, now: float
) -> None:
    """Add a client's new certificates unless they are stored; the previous ones stay valid too.

    Raises:
        UnknownClientError: If there is no such client, or it is revoked.
    """
    with store.write() as connection:
        _require_active(connection, client)
        add_certificates(connection, client, given, now)


def check_caller(store: Store, tls_sha256: bytes, *, now: float) -> str:
    """Return the name of the client to which a TLS certificate, by its DER's SHA-256, belongs.

    Raises:
        CallerError: If the certificate is unknown, expired, or its client is revoked.
    """
    where = and_(certificates.c.sha256 == tls_sha256, certificates.c.key_use == "tls")
    with store.read() as connection:
        row = connection.execute(
            select(clients.c.name, clients.c.revoked_at, certificates.c.not_after)
            .join(clients, clients.c.name == certificates.c.client)
            .where(where)
        ).first()
    if row is None:
        raise CallerError(
            RefusalCode.CERTIFICATE_UNKNOWN, "this federation does not know the certificate"
        )
    if row.revoked_at is not None:
        raise CallerError(RefusalCode.CERTIFICATE_REVOKED, f"{row.name} was revoked")
    if now > row.not_after:
        raise CallerError(
            RefusalCode.CERTIFICATE_EXPIRED, f"the certificate of {row.name} expired: enrol again"
        )
    return str(row.name)


def population(store: Store) -> list[str]:
    """Return the names of all clients that may be drawn: enrolled and not revoked, sorted."""
    with store.read() as connection:
        names = connection.execute(
            select(clients.c.name).where(clients.c.revoked_at.is_(None)).order_by(clients.c.name)
        ).scalars()
        return [str(name) for name in names]


def population_size(store: Store) -> int:
    """Return how many clients ``population`` names."""
    counted = select(func.count()).select_from(clients).where(clients.c.revoked_at.is_(None))
    with store.read() as connection:
        return connection.execute(counted).scalar_one()


def eligible_clients(
    store: Store, round_number: int, *, min_separation: int, max_participation: int
) -> list[str]:
    """Return the clients that may take part in a round of mode ``ftrl``, sorted.

    A device of round r may next take part in round r + ``min_separation``.
    """
    rested = or_(
        clients.c.last_round.is_(None), clients.c.last_round <= round_number - min_separation
    )
    may = and_(
        clients.c.revoked_at.is_(None), clients.c.participation_count < max_participation, rested
    )
    with store.read() as connection:
        names = connection.execute(
            select(clients.c.name).where(may).order_by(clients.c.name)
        ).scalars()
        return [str(name) for name in names]


def count_participation(
    connection: Connection, which: ColumnElement[bool], round_number: int
) -> None:
    """Note, in the release's transaction, that clients have an update in a round's model."""
    connection.execute(
        update(clients)
        .where(which)
        .values(participation_count=clients.c.participation_count + 1, last_round=round_number)
    )


def add_names(store: Store, names: Iterable[str], *, now: float) -> None:
    """Add clients by name alone, as a simulation knows them; known ones stay as they are."""
    with store.write() as connection:
        known = set(connection.execute(select(clients.c.name)).scalars())
        new = [{"name": name, "enrolled_at": now} for name in names if name not in known]
        if new:
            connection.execute(clients.insert(), new)


def list_clients(store: Store) -> list[ClientSummary]:
    """Return every client that was not forgotten, by name."""
    columns = (
        clients.c.name,
        clients.c.enrolled_at,
        clients.c.revoked_at,
        clients.c.participation_count,
    )
    with store.read() as connection:
        rows = connection.execute(
            select(*columns).where(clients.c.forgotten_at.is_(None)).order_by(clients.c.name)
        ).all()
    return [ClientSummary(*row) for row in rows]


def revoke_client(store: Store, client: str, *, now: float) -> None:
    """Withdraw a client's right to call, and its unused tokens; twice changes nothing.

    Raises:
        UnknownClientError: If nobody of that name is enrolled or invited.
    """
    with store.write() as connection:
        withdraw_rights(connection, client, now)


def withdraw_rights(connection: Connection, client: str, now: float) -> None:
    """Do what ``revoke_client`` does, within a write transaction.

    Raises:
        UnknownClientError: If nobody of that name is enrolled or invited.
    """
    # Kept, though none enrols anybody any more: the name of a token is not given again.
    withdrawn = connection.execute(
        update(tokens)
        .where(tokens.c.client == client, tokens.c.used_at.is_(None))
        .values(expires_at=0.0)
    )
    if not withdrawn.rowcount:
        require_client(connection, client)
    connection.execute(
        update(clients)
        .where(clients.c.name == client, clients.c.revoked_at.is_(None))
        .values(revoked_at=now)
    )


def require_client(connection: Connection, client: str) -> None:
    """Check that a client exists.

    Raises:
        UnknownClientError: If not; says how to list them.
    """
    found = connection.execute(select(clients.c.name).where(clients.c.name == client)).first()
    if found is None:
        raise UnknownClientError(
            f"there is no client {client!r}; `sotto-server status` lists the enrolled devices"
        )


def _require_active(connection: Connection, client: str) -> None:
    require_client(connection, client)
    revoked_at = connection.execute(
        select(clients.c.revoked_at).where(clients.c.name == client)
    ).scalar()
    if revoked_at is not None:
        raise UnknownClientError(f"{client} was revoked")
