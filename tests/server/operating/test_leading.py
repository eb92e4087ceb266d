"""A coordinator stands by only where the leader's folder and the database's time are its own."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.config.federation import FederationConfig
from server.operating import leading
from server.operating.admin_socket import admin_socket
from server.operating.leading import in_turn, out_of_service
from server.records import leadership
from server.records.folder import ServerFolder
from server.records.lock import AlreadyRunningError, only_holder
from server.records.store import StoreError
from server.services.listeners import ListenError
from tests.integration.shared_federation import SharedFederation
from tests.server.postgresql_cluster import PostgresqlCluster

pytestmark = pytest.mark.xdist_group("postgresql")


@pytest.fixture(scope="module")
def federation(
    tmp_path_factory: pytest.TempPathFactory, postgresql: PostgresqlCluster
) -> Iterator[tuple[ServerFolder, FederationConfig]]:
    root = tmp_path_factory.mktemp("leading")
    federation = SharedFederation(root / "f", postgresql.database())
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_RUNTIME_DIR", str(root))
        # The leader is this process, which goes on whatever the machine does meanwhile.
        patched.setattr(leading, "_leave", lambda _: None)
        patched.setattr(leadership, "PATIENCE_S", 90.0)
        patched.setattr(leadership, "SILENCE_MS", 100_000)
        yield federation.folder, federation.config


@pytest.fixture
def leader(federation: tuple[ServerFolder, FederationConfig]) -> Iterator[None]:
    """Lead as a command does that changes what a coordinator reads."""
    with out_of_service(*federation):
        yield


def stand_by(folder: ServerFolder, config: FederationConfig) -> None:
    async def wait() -> None:
        async with in_turn(folder, config, config.listen):
            raise AssertionError("it must not lead")

    asyncio.run(wait())


@pytest.mark.usefixtures("leader")
def test_a_folder_that_the_leader_does_not_write_to_is_refused(
    tmp_path: Path,
    federation: tuple[ServerFolder, FederationConfig],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, config = federation
    copy = ServerFolder(tmp_path / "copy")
    copy.root.mkdir()
    monkeypatch.setattr(leading, "_SHARING_S", 0.1)

    with pytest.raises(StoreError, match=r"must be the leader's .* appear here"):
        stand_by(copy, config)


@pytest.mark.usefixtures("leader")
def test_nothing_else_changes_what_a_leader_reads(
    federation: tuple[ServerFolder, FederationConfig],
) -> None:
    with (
        pytest.raises(AlreadyRunningError, match=r"a coordinator serves; .* \(term \d\)"),
        out_of_service(*federation),
    ):
        raise AssertionError("it must not get the turn")


def test_a_second_coordinator_on_one_machine_is_refused(
    federation: tuple[ServerFolder, FederationConfig],
) -> None:
    lock = admin_socket(*federation).with_suffix(".lock")

    with only_holder(lock, ""), pytest.raises(AlreadyRunningError, match="runs on this machine"):
        stand_by(*federation)


@pytest.mark.usefixtures("leader")
def test_a_clock_that_is_not_the_databases_is_told(
    tmp_path: Path,
    federation: tuple[ServerFolder, FederationConfig],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(leading, "clock_ahead_s", lambda _: 61.0)
    monkeypatch.setattr(leading, "_SHARING_S", -1.0)
    # Another folder than the leader's: a quick answer of the leader would let this one stand by.
    copy = ServerFolder(tmp_path / "copy")
    copy.root.mkdir()

    with caplog.at_level(logging.WARNING), pytest.raises(StoreError):
        stand_by(copy, federation[1])

    assert "this machine's clock is 61 s ahead of the database's" in caplog.text


def test_the_socket_lies_on_the_machine_and_in_a_folder_that_is_its_owners(
    tmp_path: Path, federation: tuple[ServerFolder, FederationConfig]
) -> None:
    folder, config = federation
    socket = admin_socket(folder, config)

    assert socket.parent == folder.root.parent / "sotto-server"
    assert socket.name.endswith("-admin.sock")
    assert admin_socket(ServerFolder(tmp_path / "other"), config) != socket
    socket.parent.chmod(0o755)
    with pytest.raises(ListenError, match="must be an owner-only folder"):
        admin_socket(folder, config)
    socket.parent.chmod(0o700)
