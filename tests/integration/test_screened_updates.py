"""A release tells how many updates were refused or set aside, and why, and nothing of whose."""

import grpc
import numpy as np
import pytest

from protos import federation_pb2 as pb
from tests.integration.conftest import Make
from tests.integration.device import Device, code_of, next_lease, wait_finished

SCREENING = """
[screening]
norm_factor = 4.0
"""


def seal_scaled(device: Device, lease: pb.Lease, scale: float) -> tuple[bytes, bytes]:
    """Seal the device's own update times a factor."""
    return device.seal_update(lease, device.update_for(lease) * np.float32(scale))


def test_a_release_counts_what_was_refused_and_what_was_set_aside(make_federation: Make) -> None:
    federation = make_federation(cap=1, cohort=3, quorum=2, clipping_norm=1.0, tables=SCREENING)
    federation.start()
    one, two, bad = federation.enrol(3)
    orders = {device.name: device.check_in() for device in (one, two, bad)}
    leases = {device.name: next_lease(orders[device.name]) for device in (one, two, bad)}
    bad.receive(leases[bad.name])

    # Above any norm that could be summed.
    with pytest.raises(grpc.RpcError) as refused:
        bad.send(leases[bad.name], *seal_scaled(bad, leases[bad.name], 1e21))
    assert code_of(refused.value) == "malformed_update"
    # Usable, so it is acknowledged; it is set aside when the round closes.
    assert bad.send(leases[bad.name], *seal_scaled(bad, leases[bad.name], 1e3)) == 1
    assert [device.take_part(leases[device.name]) for device in (one, two)] == [1, 1]
    wait_finished(orders[one.name])

    federation.stop()
    (release,) = federation.releases()
    assert release.contribution_count == 2
    assert release.metrics["refused_malformed_update"] == 1
    assert release.metrics["screened_norm"] == 1
    assert "screened_not_finite" not in release.metrics
    assert bad.name not in str(release)
