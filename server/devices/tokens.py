"""Make and redeem the single-use tokens with which devices enrol.

A token is 16 random bytes in an invite, bound to one client name and good for a day unless
withdrawn. Only its SHA-256 is stored: a random 128-bit secret needs no slow hash. A device whose
answer was lost may repeat the same request; any other use is refused.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, select, update

from protos.refusals import RefusalCode
from server.devices.clients import enrol_client, require_client
from server.devices.device_certificates import StoredCertificate, all_certificates
from server.machine.cohort import EntropySource
from server.records.store import Store
from server.records.tables import clients, tokens

TOKEN_BYTES = 16
LIFE_S = 24 * 3600.0
_PREFIX = "device-"


class TokenError(Exception):
    """Raised when a token enrols nobody; ``code`` says why."""

    def __init__(self, code: RefusalCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token of 16 random bytes that only its invite will know; ``expires_at`` in Unix seconds."""

    client: str
    token: bytes
    expires_at: float

    def __repr__(self) -> str:
        """Leave the token out: it is a secret, and texts end up in logs."""
        return f"NewToken(client={self.client!r}, expires_at={self.expires_at})"


def create_tokens(store: Store, count: int, source: EntropySource, *, now: float) -> list[NewToken]:
    """Make tokens for the next ``count`` client names.

    Raises:
        ValueError: If ``count`` is below 1.
    """
    if count < 1:
        raise ValueError(f"count must be >= 1, got {count}")
    with store.write() as connection:
        first = _last_number(connection) + 1
        names = [f"{_PREFIX}{number:04d}" for number in range(first, first + count)]
        return [_insert(connection, name, source, now) for name in names]


def renew_token(store: Store, client: str, source: EntropySource, *, now: float) -> NewToken:
    """Make a token with which a known client enrols again, under its name and its counts.

    Raises:
        UnknownClientError: If there is no such client.
    """
    with store.write() as connection:
        require_client(connection, client)
        return _insert(connection, client, source, now)


def look_at_token(store: Store, token: bytes, *, now: float) -> None:
    """Look whether a token may enrol anybody, before anything that came with it is read.

    Raises:
        TokenError: If the token is unknown, expired or withdrawn.
    """
    with store.read() as connection:
        _known(connection, token, now)


def check_token(store: Store, token: bytes, requests_sha256: bytes, *, now: float) -> str:
    """Return the client name that a token would enrol, before certificates are made.

    Raises:
        TokenError: If the token is unknown, expired, withdrawn, or was used for other requests.
    """
    with store.read() as connection:
        return str(_usable(connection, token, requests_sha256, now).client)


def redeem_token(
    store: Store,
    token: bytes,
    requests_sha256: bytes,
    given: Iterable[StoredCertificate],
    *,
    now: float,
) -> list[StoredCertificate]:
    """Enrol a token's client once; return its certificates, those of the first answer on a repeat.

    Raises:
        TokenError: If the token is unknown, expired, withdrawn, or was used for other requests.
    """
    chosen = list(given)
    with store.write() as connection:
        row = _usable(connection, token, requests_sha256, now)
        if row.used_at is not None:
            return all_certificates(connection, row.client)
        connection.execute(
            update(tokens)
            .where(tokens.c.token_sha256 == row.token_sha256)
            .values(used_at=now, requests_sha256=requests_sha256)
        )
        enrol_client(connection, row.client, chosen, now)
    return chosen


# Any: a row's columns are typed by the database, not by Python.
def _usable(connection: Connection, token: bytes, requests_sha256: bytes, now: float) -> Row[Any]:
    row = _known(connection, token, now)
    if row.used_at is not None and row.requests_sha256 != requests_sha256:
        raise TokenError(RefusalCode.TOKEN_USED, "the token was used: ask for a new invite")
    return row


# Any: as above.
def _known(connection: Connection, token: bytes, now: float) -> Row[Any]:
    digest = hashlib.sha256(token).digest()
    row = connection.execute(select(tokens).where(tokens.c.token_sha256 == digest)).first()
    if row is None:
        raise TokenError(RefusalCode.TOKEN_INVALID, "the token is unknown: ask for a new invite")
    if now >= row.expires_at:
        raise TokenError(
            RefusalCode.TOKEN_EXPIRED, "the token expired or was withdrawn: ask for a new invite"
        )
    return row


def _insert(connection: Connection, client: str, source: EntropySource, now: float) -> NewToken:
    new = NewToken(client, source.bytes(TOKEN_BYTES), now + LIFE_S)
    connection.execute(
        tokens.insert().values(
            token_sha256=hashlib.sha256(new.token).digest(),
            client=client,
            expires_at=new.expires_at,
        )
    )
    return new


def _last_number(connection: Connection) -> int:
    # Names of tokens that were never used are not given again: two invites must never name one
    # device, however late the first is opened.
    names = set(connection.execute(select(tokens.c.client)).scalars())
    names.update(connection.execute(select(clients.c.name)).scalars())
    return max((int(name.removeprefix(_PREFIX)) for name in names), default=0)
