"""Devices that go away: noticed at once, waited for until the deadline, and never longer."""

import queue
import time

import grpc
import pytest

from protos import federation_pb2 as pb
from protos import federation_pb2_grpc as pb_grpc
from tests.integration.conftest import Make
from tests.integration.device import next_lease
from tests.integration.federation import Federation
from tests.integration.serving_process import LEAP_S
from tests.waiting import until


def status(federation: Federation) -> pb.StatusResponse:
    with grpc.insecure_channel(f"unix:{federation.root}/admin.sock") as channel:
        return pb_grpc.AdminStub(channel).Status(pb.StatusRequest(), timeout=60)


def wait_until_connected(federation: Federation, count: int) -> None:
    """Wait until so many devices are connected, for far less time than a round has."""
    until(lambda: status(federation).connected_clients == count)


def test_a_dead_device_is_noticed_and_the_round_closes_at_its_own_deadline(
    make_federation: Make,
) -> None:
    federation = make_federation(cohort=2, quorum=1)
    federation.start()
    alive, dead = federation.enrol(2)
    orders, dead_orders = alive.check_in(), dead.check_in()
    lease, dead_lease = next_lease(orders), next_lease(dead_orders)

    # It dies in the middle of its upload.
    sealed, message_id = dead.seal_update(dead_lease)
    dead.open_upload(dead_lease, message_id, len(sealed))
    dead.upload(dead_lease, sealed[:1000])
    dead.close()
    wait_until_connected(federation, 1)
    alive.take_part(lease)
    # At its deadline, and not when the only device that was left had committed.
    time.sleep(0.5)
    assert (status(federation).phase, federation.releases()) == ("open", [])
    federation.leap()

    second = next_lease(orders)

    assert second.round_number == 2
    assert lease.remaining_ms <= 1000 * LEAP_S
    (release,) = federation.releases()
    assert release.contribution_count == 1
    # What the dead device left is deleted with its lease.
    assert not any(federation.folder.uploads.glob(f"{dead_lease.nonce.hex()}.*"))


def test_a_device_that_comes_back_has_its_lease_and_its_bytes(make_federation: Make) -> None:
    federation = make_federation(cohort=1, quorum=1)
    federation.start()
    (device,) = federation.enrol(1)
    orders = device.check_in()
    lease = next_lease(orders)
    sealed, message_id = device.seal_update(lease)
    device.open_upload(lease, message_id, len(sealed))
    device.upload(lease, sealed[:1000])
    # Its connection breaks while the next piece is on its way.
    no_piece = queue.SimpleQueue[pb.UploadChunk]()
    lost = device.stub.Upload.future(iter(no_piece.get, None))
    time.sleep(0.2)
    device.close()
    wait_until_connected(federation, 0)
    until(lost.done)

    device.connect()
    orders = device.check_in()
    again = next_lease(orders)

    assert (again.nonce, again.slot, again.deadline_ms) == (
        lease.nonce,
        lease.slot,
        lease.deadline_ms,
    )
    assert device.open_upload(again, message_id, len(sealed)).offset == 1000
    assert device.send(again, sealed, message_id) == 1
    assert next_lease(orders).round_number == 2
    # Nobody was refused anything.
    (release,) = federation.releases()
    assert not [name for name in release.metrics if name.startswith("refused_")]


def test_a_lost_place_goes_to_a_device_that_waits(make_federation: Make) -> None:
    federation = make_federation(cohort=1, quorum=1, more_rounds='selection = "first-come"')
    federation.start()
    first, second = federation.enrol(2)
    orders = first.check_in()
    lease = next_lease(orders)
    waiting = second.check_in()
    wait_until_connected(federation, 2)

    first.close()
    taken_over = next_lease(waiting)

    assert (taken_over.round_number, taken_over.slot) == (1, 0)
    assert taken_over.nonce != lease.nonce
    assert second.take_part(taken_over) == 1


def test_a_round_without_its_quorum_is_started_over_and_then_given_up(
    make_federation: Make,
) -> None:
    federation = make_federation(cohort=2, quorum=2, more_rounds="retry_limit = 1")
    federation.start()
    first, second = federation.enrol(2)
    orders, _ = first.check_in(), second.check_in()
    lease = next_lease(orders)
    first.take_part(lease)
    federation.leap()

    again = next_lease(orders)

    # The same round from the same model, under a new lease; what was acknowledged has expired.
    assert (again.round_number, again.attempt) == (lease.round_number, 1)
    assert again.base_sha256 == lease.base_sha256
    assert again.nonce != lease.nonce
    federation.leap()
    until(lambda: status(federation).phase == "given_up")
    assert federation.releases() == []
    # The operator starts it again.
    with grpc.insecure_channel(f"unix:{federation.root}/admin.sock") as channel:
        pb_grpc.AdminStub(channel).Resume(pb.ResumeRequest(), timeout=60)
    third = next_lease(orders)
    assert (third.round_number, third.attempt) == (1, 2)


def test_a_device_that_refuses_its_plan_is_not_waited_for(make_federation: Make) -> None:
    federation = make_federation(cohort=2, quorum=1)
    federation.start()
    willing, unwilling = federation.enrol(2)
    orders, other_orders = willing.check_in(), unwilling.check_in()
    lease, other_lease = next_lease(orders), next_lease(other_orders)
    willing.take_part(lease)

    unwilling.stub.RefusePlan(
        pb.RefusePlanRequest(lease_nonce=other_lease.nonce, code="floor_mode", reason="no noise"),
        timeout=60,
    )

    second = next_lease(orders)
    assert second.round_number == 2
    (release,) = federation.releases()
    assert release.contribution_count == 1
    assert release.metrics["refused_floor_mode"] == 1
    with pytest.raises(grpc.RpcError):
        unwilling.fetch(other_lease)
