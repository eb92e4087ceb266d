"""Rounds with parameters generated for each device: what fits nobody else, and what survives."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import grpc
import numpy as np
import pytest
import torch
from torch import Tensor

from models.networks.flat_parameters import parameters_sha256
from models.plan.plan import upload_schema
from models.plan.release_record import PERSONALISATION_FILE
from models.vector.base_digest import base_digest
from models.vector.codec import encode
from models.vector.tensor_file import NamedArrays, decode_tensors
from privacy.sealing.envelope import UnsealError
from protos import federation_pb2 as pb
from server.operating.commands import Federation as Commands
from tests.integration.conftest import Make
from tests.integration.device import Device, Orders, code_of, next_lease, plan_of
from tests.integration.federation import Federation, settings
from tests.integration.personal_federation import FEDTP, TRANSFORMER, Simulated
from tests.integration.real_device import await_rounds
from tests.integration.test_failpoints import StubbornDevice

pytestmark = pytest.mark.xdist_group("personal rounds")

TABLES = FEDTP.format(head="shared")
GENERATED = pb.MODEL_PART_GENERATED


def simulated(federation: Federation, names: list[str]) -> Simulated:
    """Simulate the updates that these devices make up, of 100 examples each."""
    config = federation.config
    by_name = {device.name: device for device in federation.devices}

    def train(number: int, name: str, _: Tensor) -> tuple[Tensor, int]:
        return torch.from_numpy(by_name[name].made_up(config, number)), 100

    return Simulated(config, names, train)


def state_in(release: Path) -> NamedArrays:
    return decode_tensors((release / PERSONALISATION_FILE).read_bytes())[0]


class Scene:
    """Hold a running federation in the middle of a round that nothing here may disturb."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.devices = federation.devices
        self.orders: list[Orders] = [device.check_in() for device in self.devices]
        self.leases = [next_lease(orders) for orders in self.orders]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    text = settings(model=TRANSFORMER, tables=TABLES)
    federation = Federation(tmp_path_factory.mktemp("personal") / "f", text)
    federation.start()
    try:
        federation.enrol(2)
        yield Scene(federation)
    finally:
        federation.stop()


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return code_of(caught.value)


def test_each_device_gets_what_was_generated_for_it(scene: Scene) -> None:
    expected = simulated(scene.federation, [device.name for device in scene.devices])

    received = []
    for device, lease in zip(scene.devices, scene.leases, strict=True):
        sealed = device.fetch(lease, part=GENERATED)
        assert len(sealed) == lease.generated_bytes
        received.append(device.open_generated(lease, sealed))
        own = expected.half.parameters_for(device.name)
        assert own is not None
        assert np.array_equal(received[-1], own.numpy())

    assert not np.array_equal(received[0], received[1])


def test_another_devices_part_is_neither_given_nor_opened(scene: Scene) -> None:
    (one, other), (lease, other_lease) = scene.devices, scene.leases

    assert refusal(lambda: one.fetch(other_lease, part=GENERATED)) == "unknown_lease"
    # Even if it came into its hands, by a captured network or coordinator.
    sealed = other.fetch(other_lease, part=GENERATED)
    for as_if in (lease, other_lease):
        with pytest.raises(UnsealError):
            one.open_generated(as_if, sealed)


def test_a_part_goes_on_where_it_stopped_and_has_no_end_beyond_its_own(scene: Scene) -> None:
    device, lease = scene.devices[0], scene.leases[0]
    whole = device.fetch(lease, part=GENERATED)

    for offset in (1, 576, len(whole)):
        assert device.fetch(lease, offset, GENERATED) == whole[offset:]
    past = len(whole) + 1
    assert refusal(lambda: device.fetch(lease, past, GENERATED)) == "wrong_offset"


def test_a_part_that_no_model_has_is_refused(scene: Scene) -> None:
    device, lease = scene.devices[0], scene.leases[0]
    request = pb.FetchModelRequest(lease_nonce=lease.nonce)
    request.part = 7  # type: ignore[assignment]  # what a newer device might ask for

    assert refusal(lambda: list(device.stub.FetchModel(request, timeout=60))) == "unknown_part"


@pytest.mark.parametrize("start", ["the shared part alone", "another device's part"])
def test_an_update_from_another_start_is_refused(scene: Scene, start: str) -> None:
    (device, other), lease = scene.devices, scene.leases[0]
    half = simulated(scene.federation, [device.name]).half
    foreign = half.parameters_for(other.name)
    assert foreign is not None
    base = lease.base_sha256
    if start == "another device's part":
        base = base_digest(base, parameters_sha256(foreign))
    device.receive(lease)
    context = replace(device.uplink_context(lease), base_sha256=base)
    payload = encode(upload_schema(plan_of(lease)), device.update_for(lease))

    sealed, message_id = device.seal_payload(payload, context)
    device.open_upload(lease, message_id, len(sealed))
    device.upload(lease, sealed)

    assert refusal(lambda: device.commit(lease, message_id)) == "unseal_failed"


def take_part(device: Device, orders: Orders) -> None:
    device.take_part(next_lease(orders))


def test_a_forgotten_device_has_no_row_and_one_that_was_away_keeps_its_own(
    make_federation: Make,
) -> None:
    federation = make_federation(
        model=TRANSFORMER, cap=3, cohort=2, quorum=1, tables=TABLES, deadline=60.0
    )
    federation.start()
    devices = federation.enrol(2)
    streams = [device.check_in() for device in devices]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(take_part, devices, streams))
    leases = [next_lease(orders) for orders in streams]
    await_rounds(federation, 1)
    first, second = (f"client/{device.name}" for device in devices)
    before = state_in(federation.folder.releases / "000001")
    assert {first, second} <= before.keys()

    # The first device takes part in round 2, the other refuses it.
    devices[1].stub.RefusePlan(pb.RefusePlanRequest(lease_nonce=leases[1].nonce, code="busy"))
    devices[0].take_part(leases[0])
    devices[0].receive(next_lease(streams[0]))
    await_rounds(federation, 2)
    after = state_in(federation.folder.releases / "000002")
    assert np.array_equal(after[second], before[second])
    assert not np.array_equal(after[first], before[first])

    # While the coordinator runs, and once more when it does not.
    Commands(federation.root).forget(devices[1].name)
    for release in ("000000", "000001", "000002"):
        assert second not in state_in(federation.folder.releases / release)
    federation.stop()
    Commands(federation.root).forget(devices[0].name)
    left = state_in(federation.folder.releases / "latest")
    assert not [name for name in left if name.startswith("client/")]
    assert np.array_equal(left["phi"], after["phi"])


@pytest.mark.parametrize("failpoint", ["committed:3", "release_recorded"])
def test_a_killed_coordinator_ends_where_an_undisturbed_one_does(
    make_federation: Make, failpoint: str
) -> None:
    federation = make_federation(model=TRANSFORMER, cap=2, tables=TABLES)
    federation.start(failpoint)
    devices = federation.enrol(2)

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(StubbornDevice(device).run) for device in devices]
        federation.wait_killed()
        federation.start()
        for future in running:
            future.result(timeout=60)
    federation.stop()

    expected = simulated(federation, [device.name for device in devices])
    assert [release.parameters_sha256 for release in federation.releases()] == expected.run(2)
    latest = federation.folder.releases / "latest" / PERSONALISATION_FILE
    assert latest.read_bytes() == expected.state_file
