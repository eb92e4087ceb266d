"""Make the bearer tokens by which clients are told apart, and look them up.

A token is 32 random bytes. Only its SHA-256 is kept: a secret of 256 bits needs no slow hash, and a
stolen file opens nothing. A client has one token; a new one replaces it.
"""

import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from export.serve.folder.folder import ServingError, ServingFolder
from privacy.foundation.atomic_files import write_atomically
from privacy.foundation.strict_json import read_json

_PREFIX = "sotto_"
_TOKEN_BYTES = 32
_CLIENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


class _TokenFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of ``tokens.json``: hex SHA-256 of the token, by client."""

    clients: dict[str, str]


class KnownTokens:
    """Every client's token, by its hash."""

    def __init__(self, hashes: Mapping[str, str]) -> None:
        self._clients = {digest: client for client, digest in hashes.items()}

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def clients(self) -> frozenset[str]:
        """Return the names of clients with a token."""
        return frozenset(self._clients.values())

    def client_of(self, token: str) -> str | None:
        """Return the client of a token; None if it is nobody's."""
        # Looked up by hash: how long it takes says nothing of a secret that could be guessed on.
        return self._clients.get(_digest(token))


def bearer_token(authorization: str) -> str:
    """Return the token that an ``Authorization`` header bears; empty if it bears none."""
    kind, _, token = authorization.partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def make_tokens(folder: ServingFolder, clients: Iterable[str]) -> dict[str, str]:
    """Make a token for each client, which ends the one it had; they are stored nowhere else.

    Return the tokens by client, in the order given. Raise ServingError if a name is none, or the
    file
    of hashes is corrupt.
    """
    made = {checked_client(name): _PREFIX + secrets.token_urlsafe(_TOKEN_BYTES) for name in clients}
    with folder.changing_tokens():
        hashes = _read(folder.tokens)
        hashes |= {client: _digest(token) for client, token in made.items()}
        _write(folder.tokens, hashes)
    return made


def revoke_tokens(folder: ServingFolder, clients: Iterable[str]) -> None:
    """End the tokens of the clients, all or none; ServingError if one of them has none."""
    with folder.changing_tokens():
        hashes = _read(folder.tokens)
        for client in clients:
            if hashes.pop(client, None) is None:
                raise ServingError(f"client {client!r} has no token to revoke")
        _write(folder.tokens, hashes)


def clients_with_tokens(folder: ServingFolder) -> list[str]:
    """Return all clients with a token, sorted; ServingError if the file of hashes is corrupt."""
    return sorted(_read(folder.tokens))


def read_tokens(folder: ServingFolder) -> KnownTokens:
    """Return every token that is known; ServingError if the file of hashes is corrupt."""
    return KnownTokens(_read(folder.tokens))


def checked_client(client: str) -> str:
    """Return a client's name, which may stand in a file's; ServingError if it is none."""
    if not _CLIENT_NAME.fullmatch(client):
        raise ServingError(
            "a client's name must be 1 to 64 of A-Z a-z 0-9 . _ @ -, the first a letter or digit, "
            f"got {client[:80]!r}"
        )
    return client


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _read(path: Path) -> dict[str, str]:
    try:
        return read_json(path, _TokenFile).clients
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        raise ServingError(f"{path} cannot be read: {error}") from None


def _write(path: Path, hashes: dict[str, str]) -> None:
    write_atomically(path, msgspec.json.encode(_TokenFile(hashes), order="deterministic"))
