"""Updates that wait for the disk together go there together, and each fault stays with its own."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import event

from server.devices.clients import revoke_client
from server.machine.answers import Lease
from server.records.attempts import OpenAttempt
from server.records.contributions import ContributionError, Verified, contributions_of
from server.records.failpoints import UNARMED
from server.records.inbox import Inbox
from server.records.store import Store
from server.records.threads import Threads
from server.releases.files import ReleaseFolder
from server.releases.metrics_log import MetricsLog
from server.releases.storage import Storage
from server.uplink.group_commit import GroupCommit
from tests.server.both_stores import on_both_stores

ONE, TWO, THREE = "device-0001", "device-0002", "device-0003"


@pytest.fixture
def storage(
    store: Store, inbox: Inbox, releases: ReleaseFolder, tmp_path: Path
) -> Iterator[Storage]:
    with ThreadPoolExecutor(2) as executor:
        yield Storage(
            store, inbox, releases, MetricsLog(tmp_path / "metrics"), Threads(executor), UNARMED
        )


class Commits:
    """Keep updates at one moment, and count the transactions that it took."""

    def __init__(self, storage: Storage, folder: Path) -> None:
        self.transactions = 0
        self._storage, self._folder = storage, folder
        event.listen(storage.store._engine, "commit", self._count)

    def _count(self, _connection: object) -> None:
        self.transactions += 1

    def keep(self, leases: list[Lease]) -> list[BaseException | None]:
        async def all_at_once() -> list[BaseException | None]:
            group = GroupCommit(self._storage)
            return await asyncio.gather(
                *(group.keep(self._verified(lease)) for lease in leases), return_exceptions=True
            )

        return asyncio.run(all_at_once())

    def _verified(self, lease: Lease) -> Verified:
        partial = self._folder / f"{lease.nonce.hex()}.part"
        partial.write_bytes(lease.client.encode())
        return Verified(partial, lease, lease.nonce, bytes(32), 7)


@on_both_stores
def test_updates_that_wait_together_share_a_transaction_and_all_are_kept(
    inbox: Inbox,
    storage: Storage,
    first_round: OpenAttempt,
    lease_of: Callable[[str], Lease],
    tmp_path: Path,
) -> None:
    commits = Commits(storage, tmp_path)

    outcomes = commits.keep([lease_of(name) for name in (THREE, ONE, TWO)])

    assert outcomes == [None] * 3
    assert commits.transactions == 1
    held = contributions_of(storage.store, 1, 0)
    assert [one.receipt.client for one in held] == [ONE, TWO, THREE]
    assert [inbox.path(one.blob).read_bytes() for one in held] == [
        name.encode() for name in (ONE, TWO, THREE)
    ]
    assert [one.blob_bytes for one in held] == [len(ONE)] * 3


@on_both_stores
def test_one_that_may_not_count_keeps_no_other_from_counting(
    store: Store,
    storage: Storage,
    first_round: OpenAttempt,
    lease_of: Callable[[str], Lease],
    tmp_path: Path,
) -> None:
    commits = Commits(storage, tmp_path)
    assert commits.keep([lease_of(ONE)]) == [None]
    revoke_client(store, THREE, now=110.0)
    again = Lease(b"again" + bytes(11), ONE, 1, 0, 0, 60.0)

    outcomes = commits.keep([again, lease_of(TWO), lease_of(THREE)])

    assert [type(outcome) for outcome in outcomes] == [
        ContributionError,
        type(None),
        ContributionError,
    ]
    assert "contributed to round 1 before" in str(outcomes[0])
    assert "device-0003 is not an enrolled client" in str(outcomes[2])
    assert [one.receipt.client for one in contributions_of(store, 1, 0)] == [ONE, TWO]


@on_both_stores
def test_a_file_that_is_gone_is_the_fault_of_its_own_update_alone(
    store: Store,
    storage: Storage,
    first_round: OpenAttempt,
    lease_of: Callable[[str], Lease],
    tmp_path: Path,
) -> None:
    (tmp_path / "there.part").write_bytes(b"sealed")
    there = Verified(tmp_path / "there.part", lease_of(ONE), bytes(16), bytes(32), 7)
    gone = Verified(tmp_path / "gone.part", lease_of(TWO), bytes(16), bytes(32), 7)

    async def both() -> list[BaseException | None]:
        group = GroupCommit(storage)
        kept = (group.keep(update) for update in (gone, there))
        return await asyncio.gather(*kept, return_exceptions=True)

    outcomes = asyncio.run(both())

    assert isinstance(outcomes[0], FileNotFoundError)
    assert outcomes[1] is None
    assert [one.receipt.client for one in contributions_of(store, 1, 0)] == [ONE]
