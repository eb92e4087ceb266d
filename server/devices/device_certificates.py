"""Keep each device's certificate of every use, and the one before for messages under way."""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, delete, select

from server.records.store import Store
from server.records.tables import certificates, clients

_GENERATIONS = 2
_COLUMNS = (
    certificates.c.sha256,
    certificates.c.key_use,
    certificates.c.der,
    certificates.c.not_after,
)
_NEWEST_FIRST = (certificates.c.issued_at.desc(), certificates.c.not_after.desc())


@dataclass(frozen=True, slots=True)
class StoredCertificate:
    """One DER certificate of a device, for one ``KeyUse``; ``not_after`` is in Unix seconds."""

    sha256: bytes
    key_use: str
    der: bytes
    not_after: float


def certificates_of(store: Store, client: str, key_use: str) -> list[StoredCertificate]:
    """Return a client's certificates of one use, newest first; none for a revoked client."""
    with store.read() as connection:
        rows = connection.execute(
            select(*_COLUMNS)
            .join(clients, clients.c.name == certificates.c.client)
            .where(
                certificates.c.client == client,
                certificates.c.key_use == key_use,
                clients.c.revoked_at.is_(None),
            )
            .order_by(*_NEWEST_FIRST)
        ).all()
    return [StoredCertificate(*row) for row in rows]


def find_certificate(store: Store, sha256: bytes) -> StoredCertificate | None:
    """Return the certificate of that digest, whatever became of its client, or None."""
    with store.read() as connection:
        row = connection.execute(select(*_COLUMNS).where(certificates.c.sha256 == sha256)).first()
    return None if row is None else StoredCertificate(*row)


def all_certificates(connection: Connection, client: str) -> list[StoredCertificate]:
    """Return every certificate of a client, newest first."""
    rows = connection.execute(
        select(*_COLUMNS).where(certificates.c.client == client).order_by(*_NEWEST_FIRST)
    ).all()
    return [StoredCertificate(*row) for row in rows]


def add_certificates(
    connection: Connection, client: str, given: Iterable[StoredCertificate], now: float
) -> None:
    """Store new certificates of a client, within a write transaction, and keep two generations."""
    known = {certificate.sha256 for certificate in all_certificates(connection, client)}
    for certificate in given:
        if certificate.sha256 not in known:
            connection.execute(
                certificates.insert().values(
                    sha256=certificate.sha256,
                    client=client,
                    key_use=certificate.key_use,
                    der=certificate.der,
                    not_after=certificate.not_after,
                    issued_at=now,
                )
            )
        _drop_older_generations(connection, client, certificate.key_use)


def keep_only_generation(store: Store, client: str, tls_sha256: bytes) -> None:
    """Drop a client's certificates that were not given with this TLS one; none if it is unknown."""
    mine = certificates.c.client == client
    with store.write() as connection:
        given_at = connection.execute(
            select(certificates.c.issued_at).where(mine, certificates.c.sha256 == tls_sha256)
        ).scalar()
        if given_at is not None:
            connection.execute(
                delete(certificates).where(mine, certificates.c.issued_at != given_at)
            )


def delete_certificates(connection: Connection, client: str) -> None:
    """Delete every certificate of a client."""
    connection.execute(delete(certificates).where(certificates.c.client == client))


def _drop_older_generations(connection: Connection, client: str, key_use: str) -> None:
    held = [
        certificate.sha256
        for certificate in all_certificates(connection, client)
        if certificate.key_use == key_use
    ]
    for sha256 in held[_GENERATIONS:]:
        connection.execute(delete(certificates).where(certificates.c.sha256 == sha256))
