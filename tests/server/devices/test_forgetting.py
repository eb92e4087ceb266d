from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import select

from privacy.foundation.secure_source import SecureSource
from server.devices.clients import UnknownClientError, list_clients, population
from server.devices.device_certificates import StoredCertificate, find_certificate
from server.devices.forgetting import forget_client
from server.devices.tokens import TokenError, check_token, create_tokens
from server.machine.answers import Lease
from server.records.attempts import OpenAttempt
from server.records.contributions import contributions_of
from server.records.inbox import Inbox
from server.records.store import Store
from server.records.tables import clients, contributions
from server.releases.files import NewRelease, ReleaseFolder
from server.releases.publishing import NO_PREVIOUS, release_round

ONE, TWO = "device-0001", "device-0002"
Certificate = Callable[[str, str, int], StoredCertificate]


@pytest.fixture
def waiting(
    first_round: OpenAttempt,
    inbox: Inbox,
    lease_of: Callable[[str], Lease],
    keep: Callable[[Lease, bytes], None],
) -> Inbox:
    """Commit the updates of two clients."""
    for client in (ONE, TWO):
        keep(lease_of(client), client.encode())
    return inbox


def participation(store: Store, client: str) -> int:
    with store.read() as connection:
        row = connection.execute(select(clients).where(clients.c.name == client)).one()
    return int(row.participation_count)


def test_a_forgotten_client_is_gone_but_for_its_count(
    store: Store, waiting: Inbox, certificate: Certificate, tmp_path: Path
) -> None:
    assert forget_client(store, waiting, ONE, now=130.0) == 1

    assert population(store) == [TWO, "device-0003"]
    assert ONE not in [client.name for client in list_clients(store)]
    assert find_certificate(store, certificate(ONE, "tls", 1).sha256) is None
    assert [held.receipt.client for held in contributions_of(store, 1, 0)] == [TWO]
    files = [path.read_bytes() for path in (tmp_path / "updates").rglob("*.sealed")]
    assert files == [TWO.encode()]
    # Counted although it expired: a close may have been reading it.
    assert participation(store, ONE) == 1


def test_an_acknowledged_update_expires_with_the_reason(store: Store, waiting: Inbox) -> None:
    forget_client(store, waiting, ONE, now=130.0)

    with store.read() as connection:
        row = connection.execute(select(contributions).where(contributions.c.client == ONE)).one()
    assert (row.state, row.reason) == ("expired", "the client was forgotten")


def test_past_rounds_keep_only_the_count(
    store: Store,
    waiting: Inbox,
    releases: ReleaseFolder,
    new_release: Callable[[int, bytes], NewRelease],
) -> None:
    record = release_round(
        store, releases, new_release(0, NO_PREVIOUS), None, opened_at=1.0, now=1.0
    )
    previous = bytes.fromhex(record.parameters_sha256)
    release_round(store, releases, new_release(1, previous), None, opened_at=100.0, now=160.0)

    for now in (170.0, 180.0):
        assert forget_client(store, waiting, ONE, now=now) == 0

    with store.read() as connection:
        names = list(connection.execute(select(contributions.c.client)).scalars())
    assert names == [TWO]
    assert participation(store, ONE) == 1


def test_the_file_holds_nothing_of_a_forgotten_client(
    store: Store, waiting: Inbox, certificate: Certificate, tmp_path: Path
) -> None:
    der = certificate(ONE, "signing", 1).der
    forget_client(store, waiting, ONE, now=130.0)
    store.close()

    content = b"".join(path.read_bytes() for path in tmp_path.glob("store.sqlite*"))

    assert der not in content
    assert certificate(TWO, "signing", 1).der in content


def test_who_is_invited_and_not_enrolled_can_be_forgotten(store: Store, inbox: Inbox) -> None:
    token = create_tokens(store, 1, SecureSource(), now=0.0)[0]

    assert forget_client(store, inbox, token.client, now=1.0) == 0

    with pytest.raises(TokenError, match="expired or was withdrawn"):
        check_token(store, token.token, bytes(32), now=2.0)
    # Its name stays taken: two invites never name one device.
    assert create_tokens(store, 1, SecureSource(), now=3.0)[0].client == "device-0002"


def test_an_unknown_client_cannot_be_forgotten(store: Store, inbox: Inbox) -> None:
    with pytest.raises(UnknownClientError, match="no client 'device-0009'"):
        forget_client(store, inbox, "device-0009", now=1.0)
