"""Deploy a clipping norm that follows the clients: in every plan, and across a kill."""

import math

import grpc
import numpy as np
import pytest

from protos import federation_pb2 as pb
from protos.refusals import RefusalCode
from tests.integration.conftest import Make
from tests.integration.device import Device, code_of, next_lease, plan_of

ADAPTIVE = "adaptive_clipping = { count_noise_std = 0.0 }"


def norm_in(lease: pb.Lease) -> float:
    norm = plan_of(lease).privacy.clipping_norm
    assert norm is not None
    return norm


def send(device: Device, lease: pb.Lease, fitted: float) -> None:
    update = np.append(device.update_for(lease), np.float32(fitted))
    device.send(lease, *device.seal_update(lease, update))


def test_the_norm_travels_in_every_plan_and_outlives_a_kill(make_federation: Make) -> None:
    federation = make_federation(cap=3, more_privacy=ADAPTIVE)
    federation.start()
    devices = federation.enrol(2)
    orders = [device.check_in() for device in devices]
    first = [next_lease(stream) for stream in orders]
    for device, lease in zip(devices, first, strict=True):
        send(device, lease, 1.0)
    second = [next_lease(stream) for stream in orders]
    federation.kill()
    federation.start()
    for device in devices:
        device.close()
        device.connect()
    orders = [device.check_in() for device in devices]
    again = [next_lease(stream) for stream in orders]

    # Both fitted: ln C falls by 0.2 * (1 - 0.5).
    assert [norm_in(lease) for lease in first] == [100.0, 100.0]
    expected = 100 * math.exp(-0.1)
    assert [norm_in(lease) for lease in second + again] == pytest.approx([expected] * 4)

    # A fit that is neither 0 nor 1 would count one device as many.
    with pytest.raises(grpc.RpcError) as refused:
        send(devices[0], again[0], 7.0)
    assert code_of(refused.value) == RefusalCode.MALFORMED_UPDATE

    send(devices[0], again[0], 0.0)
    send(devices[1], again[1], 0.0)
    third = next_lease(orders[0])
    assert norm_in(third) == pytest.approx(100)
    metrics = [release.metrics for release in federation.releases()]
    assert [row["next_clipping_norm"] for row in metrics] == pytest.approx([expected, 100.0])
    assert [row["clipping_norm"] for row in metrics] == pytest.approx([100.0, expected])
