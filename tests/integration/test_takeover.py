"""A second coordinator on another machine takes over: same round, same leases, same model."""

import json
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from server.operating.leading import LOST_STATUS
from server.records.leadership import PATIENCE_S
from tests.integration.device import next_lease
from tests.integration.real_device import LIMIT_S
from tests.integration.shared_federation import Coordinator, FollowingDevice, SharedFederation
from tests.integration.test_failpoints import ROUNDS, assert_undisturbed
from tests.integration.test_observed import samples_of, scraped
from tests.integration.test_round import expected_digest
from tests.server.postgresql_cluster import PostgresqlCluster
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("postgresql")

# A second or, if the leader is silent, six; what waits for somebody takes minutes.
TAKEOVER_S = 40.0
Share = Callable[..., SharedFederation]


@pytest.fixture
def share(tmp_path: Path, postgresql: PostgresqlCluster) -> Iterator[Share]:
    """Return a function that founds federations for several machines."""
    made: list[SharedFederation] = []

    def make(**changes: object) -> SharedFederation:
        made.append(SharedFederation(tmp_path / f"s{len(made)}", postgresql.database(), **changes))
        return made[-1]

    yield make
    for federation in made:
        federation.stop()


def test_a_release_that_a_killed_leader_recorded_is_published_by_the_next(share: Share) -> None:
    federation = share(cap=ROUNDS)
    leader, standby = federation.pair("release_recorded")
    devices = federation.enrol_at(leader, 2)

    with ThreadPoolExecutor(2) as pool:
        running = [
            pool.submit(FollowingDevice(device, federation.coordinators).run) for device in devices
        ]
        assert leader.wait() == -signal.SIGKILL, leader.log
        took_s = standby.await_open()
        for future in running:
            future.result(timeout=LIMIT_S)

    assert took_s < TAKEOVER_S
    assert_undisturbed(federation, [device.name for device in devices])


def test_leases_and_committed_updates_are_as_they_were(share: Share) -> None:
    federation = share(cap=1)
    leader, standby = federation.pair()
    one, other = federation.enrol_at(leader, 2)
    leases = [next_lease(orders) for orders in [one.check_in(), other.check_in()]]
    one.take_part(leases[0])

    leader.send(signal.SIGKILL)

    assert standby.await_open() < TAKEOVER_S
    follower = FollowingDevice(other, [standby])
    follower.run()
    assert set(follower.sealed) == {leases[1].nonce}
    (release,) = federation.releases()
    assert (release.attempt, release.contribution_count) == (0, 2)
    digest = expected_digest(federation, [one.name, other.name], 1)
    assert release.parameters_sha256.hex() == digest


def test_a_leader_that_was_stopped_and_wakes_writes_nothing_and_ends(share: Share) -> None:
    federation = share(cap=1, cohort=1, quorum=1)
    federation.patience_s = PATIENCE_S
    leader, standby = federation.pair()
    (device,) = federation.enrol_at(leader, 1)
    lease = next_lease(device.check_in())
    sealed, message_id = device.seal_update(lease)
    device.open_upload(lease, message_id, len(sealed))
    device.upload(lease, sealed[: len(sealed) // 2])

    leader.send(signal.SIGSTOP)
    took_s = standby.await_open()
    follower = FollowingDevice(device, [standby])
    follower.sealed[lease.nonce] = (sealed, message_id)
    follower.run()
    # All that follows a release is done when its figures are written.
    until(federation.folder.metrics.exists)
    until(lambda: federation.folder.metrics.read_bytes().endswith(b"\n"))
    before = _everything(federation.root)
    leader.send(signal.SIGCONT)

    assert took_s < TAKEOVER_S
    assert leader.wait() == LOST_STATUS
    assert leader.log.count("leadership lost, this process ends: ") == 1
    assert _everything(federation.root) == before
    (release,) = federation.releases()
    assert release.contribution_count == 1


def test_a_leader_that_loses_its_session_ends_and_stands_by_when_it_is_started_again(
    share: Share,
) -> None:
    federation = share(cap=1)
    leader, standby = federation.pair()
    assert leader.command("status", "--leads")[0] == 0
    assert standby.command("status", "--leads")[0] == 3

    _end_session_of_leader(federation)

    assert leader.wait() == LOST_STATUS
    assert standby.await_open() < TAKEOVER_S
    again = federation.begin()
    again.await_log("(term 2)")
    assert not again.is_open


def test_a_restart_of_the_database_leaves_one_leader(
    share: Share, postgresql: PostgresqlCluster
) -> None:
    federation = share()
    leader, standby = federation.pair()

    postgresql.restart()

    assert leader.wait() == LOST_STATUS
    assert standby.await_open() < TAKEOVER_S
    assert _status(standby)["term"] == 2
    assert standby.command("status", "--leads")[0] == 0
    again = federation.begin()
    again.await_log("(term 2)")
    again.send(signal.SIGTERM)
    assert again.wait() == 0


def test_every_machine_says_who_leads_and_leaves_orders_to_it(share: Share) -> None:
    federation = share()
    nowhere = federation.begin()
    nowhere.await_open()
    nowhere.send(signal.SIGINT)
    assert nowhere.wait() == 0
    assert _status(nowhere)["phase"] == "stopped"

    leader, standby = federation.pair()

    for coordinator, phase in ((leader, "waiting"), (standby, "standby"), (nowhere, "elsewhere")):
        report = _status(coordinator)
        assert (report["phase"], report["term"]) == (phase, 2)
        assert report["leader"] == socket.gethostname()
    for coordinator, leads in ((leader, 1), (standby, 0)):
        figures = samples_of(scraped(coordinator.machine.metrics))
        assert figures["sotto_leads", ""] == leads
        # Who stands by knows nothing of the round.
        assert (("sotto_phase", "waiting") in figures) == (leads == 1)
    for command in (["pause"], ["resume"], ["drain"], ["revoke", "x"], ["forget", "x"]):
        for coordinator in (standby, nowhere):
            status, said = coordinator.command(*command)
            assert status == 1
            assert "(term 2)" in said
    for command in (["rotate-keys"], ["rotate-issuing-key"], ["replace-authority"]):
        status, said = nowhere.command(*command)
        assert (status, "a coordinator serves; stop it" in said) == (1, True)
    assert nowhere.command("status", "--leads")[0] == 1
    # The leader writes the word that the other one asks for: both have the same folder.
    until(federation.folder.shared_word.exists)
    assert leader.command("drain")[0] == 0
    assert leader.wait() == 0
    standby.await_open()
    assert samples_of(scraped(standby.machine.metrics))["sotto_leads", ""] == 1


def _status(coordinator: Coordinator) -> dict[str, Any]:
    status, said = coordinator.command("status", "--json")
    assert status == 0, said
    report: dict[str, Any] = json.loads(said)
    return report


def _everything(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def _end_session_of_leader(federation: SharedFederation) -> None:
    engine = create_engine(federation.config.store.url)
    with engine.connect() as connection:
        ended = connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_locks "
                "WHERE locktype = 'advisory' AND granted"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            )
        ).all()
    engine.dispose()
    assert len(ended) == 1
