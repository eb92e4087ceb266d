"""A coordinator that dies at any named moment of a round ends where an undisturbed one does."""

import json
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import grpc
import pytest

from protos import federation_pb2 as pb
from server.records.failpoints import Failpoint
from tests.integration.conftest import Make
from tests.integration.device import Device, call_of, next_lease
from tests.integration.federation import Federation
from tests.integration.real_device import LIMIT_S
from tests.integration.test_round import expected_digest

ROUNDS = 2
CASES = (
    "lease_given",
    "lease_given:4",
    "mid_chunk:2",
    "blob_renamed:2",
    "committed",
    "committed:3",
    "closing:2",
    "noised",
    "release_recorded",
    "published",
)


class StubbornDevice:
    """Go on after every broken connection, with the very bytes that were sealed before."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._sealed: dict[bytes, tuple[bytes, bytes]] = {}

    def run(self) -> None:
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            try:
                if self._work():
                    return
            except grpc.RpcError as error:
                assert call_of(error).code() in (
                    grpc.StatusCode.UNAVAILABLE,
                    grpc.StatusCode.CANCELLED,
                    grpc.StatusCode.UNKNOWN,
                    # The next process knows no lease before the device checks in.
                    grpc.StatusCode.NOT_FOUND,
                ), error
                time.sleep(0.1)
        raise AssertionError("the run did not end")

    def _work(self) -> bool:
        """Take part until the connection breaks; return whether the run is over."""
        for order in self._device.check_in():
            if order.HasField("retry_after"):
                return bool(order.retry_after.reason == "finished")
            if order.HasField("lease"):
                self._take_part(order.lease)
        return False

    def _take_part(self, lease: pb.Lease) -> None:
        if lease.nonce not in self._sealed:
            self._device.receive(lease)
            self._sealed[lease.nonce] = self._device.seal_update(lease)
        sealed, message_id = self._sealed[lease.nonce]
        # Small chunks, so that there is a middle to be killed in.
        opened = self._device.open_upload(lease, message_id, len(sealed))
        if opened.offset < len(sealed):
            self._device.upload(lease, sealed, opened.offset, chunk_bytes=4096)
        self._device.commit(lease, message_id)


@pytest.mark.parametrize("failpoint", CASES)
def test_a_killed_coordinator_ends_where_an_undisturbed_one_does(
    make_federation: Make, failpoint: str
) -> None:
    federation = make_federation(cap=ROUNDS)
    federation.start(failpoint)
    devices = federation.enrol(2)

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(StubbornDevice(device).run) for device in devices]
        federation.wait_killed()
        federation.start()
        for future in running:
            future.result(timeout=LIMIT_S)

    federation.stop()
    assert_undisturbed(federation, [device.name for device in devices])


def assert_undisturbed(federation: Federation, names: list[str]) -> None:
    releases = federation.releases()
    assert [release.round_number for release in releases] == list(range(1, ROUNDS + 1))
    assert [release.contribution_count for release in releases] == [2] * ROUNDS
    assert releases[-1].parameters_sha256.hex() == expected_digest(federation, names, ROUNDS)
    assert not any(path.is_file() for path in federation.folder.updates.rglob("*"))


def test_an_open_round_goes_on_whose_terms_an_older_version_did_not_note(
    make_federation: Make,
) -> None:
    federation = make_federation()
    federation.start()
    (device, other) = federation.enrol(2)
    leases = [next_lease(orders) for orders in [one.check_in() for one in (device, other)]]
    federation.kill()
    with closing(sqlite3.connect(federation.root / "store.sqlite")) as store:
        store.execute("ALTER TABLE attempts DROP COLUMN terms_sha256")
        for table in ("attempts", "releases"):
            store.execute(f"ALTER TABLE {table} DROP COLUMN ledger_sha256")
        store.execute("ALTER TABLE releases DROP COLUMN term")
        store.execute("DROP TABLE leadership")
        store.execute("UPDATE alembic_version SET version_num = '0003'")
        store.commit()

    federation.start()
    device.close()
    device.connect()

    assert next_lease(device.check_in()).nonce == leases[0].nonce


@pytest.mark.parametrize("failpoint", ["release_recorded", "published"])
def test_what_follows_behind_a_release_is_made_up_for(
    make_federation: Make, failpoint: str
) -> None:
    federation = make_federation(
        cap=1,
        cohort=1,
        quorum=1,
        tables='[evaluation]\nkind = "public"\npublic_text = "public.txt"\n',
    )
    (federation.root / "public.txt").write_text("i will be home\nsee you at the game\n")
    federation.start(failpoint)
    (device,) = federation.enrol(1)
    device.take_part(next_lease(device.check_in()))
    federation.wait_killed()
    assert not (federation.folder.releases / "best").exists()
    assert not federation.folder.metrics.exists()

    for _ in range(2):
        federation.start()
        federation.stop()

    # The first model that is measured is the best so far.
    assert (federation.folder.releases / "best").readlink().name == "000001"
    (release,) = federation.releases()
    (line,) = federation.folder.metrics.read_text().splitlines()
    assert json.loads(line) == {
        "round": 1,
        "attempt": 0,
        "model_sha256": release.parameters_sha256.hex(),
        "duration_s": release.duration_s,
        **release.metrics,
    }


def test_every_moment_is_tested() -> None:
    # No device is asked to evaluate here: tests/integration/test_guarded_federation.py. What only a
    # masked round has is in tests/integration/test_masked_kills.py.
    elsewhere = {
        Failpoint.EVALUATION_PAID,
        Failpoint.UNMASKED,
        Failpoint.ANSWER_MADE,
        Failpoint.ANSWER_KEPT,
    }
    assert {case.partition(":")[0] for case in CASES} == set(Failpoint) - elsewhere
