"""What was sent before the coordinator was killed and is sent again to the one after it."""

import grpc
import pytest

from protos import federation_pb2 as pb
from tests.integration.conftest import Make
from tests.integration.device import code_of, next_lease
from tests.integration.federation import Federation
from tests.waiting import until


def restart(federation: Federation) -> None:
    federation.kill()
    federation.start()
    for device in federation.devices:
        device.close()
        device.connect()


def test_an_update_sent_again_after_a_restart_counts_once_and_not_at_all_after_its_round(
    make_federation: Make,
) -> None:
    federation = make_federation(cap=1, cohort=3, quorum=2)
    federation.start()
    devices = federation.enrol(3)
    streams = [device.check_in() for device in devices]
    leases: list[pb.Lease] = [next_lease(orders) for orders in streams]
    devices[0].receive(leases[0])
    sealed, message_id = devices[0].seal_update(leases[0])
    another, other_id = devices[0].seal_update(leases[0])
    assert devices[0].send(leases[0], sealed, message_id) == 1

    restart(federation)

    # The same message gets the same answer, and needs no byte of it again.
    opened = devices[0].open_upload(leases[0], message_id, len(sealed))
    assert opened.committed
    assert devices[0].commit(leases[0], message_id) == 1
    # Another one of the lease does not take its place, nor count beside it.
    with pytest.raises(grpc.RpcError) as refused:
        devices[0].send(leases[0], another, other_id)
    assert code_of(refused.value) == "duplicate"
    devices[1].take_part(next_lease(devices[1].check_in()))
    slow, slow_lease = devices[2], next_lease(devices[2].check_in())
    slow.receive(slow_lease)
    late, late_id = slow.seal_update(slow_lease)
    # It gives its place back, or the round would wait for it.
    slow.stub.RefusePlan(pb.RefusePlanRequest(lease_nonce=slow_lease.nonce, code="floor_mode"))
    until(lambda: [release for release in federation.releases() if release.is_published])

    # What counted is still acknowledged; what comes of the round's leases now is refused.
    assert devices[0].commit(leases[0], message_id) == 1
    assert leases[2].nonce == slow_lease.nonce
    for device, lease, update, code in (
        (devices[0], leases[0], (another, other_id), "duplicate"),
        (slow, slow_lease, (late, late_id), "late"),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            device.send(lease, *update)
        assert code_of(refused.value) == code
    (release,) = federation.releases()
    assert release.contribution_count == 2
