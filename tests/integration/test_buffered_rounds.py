"""A deployed federation in buffered rounds: one device is slow, one too slow, and all is killed."""

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
import torch

from models.networks.flat_parameters import initial_parameters
from models.vector.seeds import client_seed
from protos import federation_pb2 as pb
from server.closing.close import close_round
from server.closing.summing import Contribution
from server.operating.commands import Federation as Operated
from tests.integration.conftest import Make
from tests.integration.device import Device, code_of, next_lease, wait_finished
from tests.integration.federation import Federation

BUFFERED = """
selection = "first-come"

[rounds.buffered]
concurrency = 4
max_staleness = 1
"""


def released(federation: Federation, *buffers: list[tuple[Device, pb.Lease]]) -> str:
    """Make the releases of these buffers in this process, each in the order of its tickets."""
    torch.set_num_threads(1)
    config = federation.config
    parameters = initial_parameters(config.model, config.seed)
    for round_number, buffer in enumerate(buffers, 1):
        contributions: list[Contribution] = []
        for device, lease in sorted(buffer, key=lambda one: one[1].slot):
            seed = client_seed(config.seed, lease.round_number, device.name)
            made_up = np.random.default_rng(seed).normal(0, 0.01, config.schema.element_count)
            # s(τ) = 1/√(1 + τ).
            worth = (1 + round_number - lease.round_number) ** -0.5
            update = torch.from_numpy(made_up.astype(np.float32))
            contributions.append(Contribution(len(contributions), update, 100, device.name, worth))
        parameters = close_round(
            parameters,
            contributions,
            schema=config.schema,
            aggregation=config.aggregation,
            privacy=config.privacy,
            slot_count=2,
            generator=torch.Generator(),
        ).parameters
    return hashlib.sha256(parameters.numpy().data).hexdigest()


def work_until_finished(device: Device) -> None:
    """Take every lease, and send again what comes while a release is made."""
    for order in device.check_in():
        if order.HasField("retry_after"):
            assert order.retry_after.reason == "finished"
            return
        if order.HasField("lease"):
            serve(device, order.lease)


def serve(device: Device, lease: pb.Lease) -> None:
    try:
        device.receive(lease)
        send(device, lease)
    except grpc.RpcError as error:
        # Others made the releases meanwhile.
        assert code_of(error) in ("stale", "late"), error


def send(device: Device, lease: pb.Lease) -> None:
    sealed = device.seal_update(lease)
    while True:
        try:
            device.send(lease, *sealed)
        except grpc.RpcError as error:
            if code_of(error) != "buffer_closed":
                raise
            time.sleep(0.01)
        else:
            return


def test_devices_that_never_wait_for_each_other_fill_every_release(make_federation: Make) -> None:
    federation = make_federation(cap=8, more_rounds=BUFFERED)
    federation.start()
    devices = federation.enrol(4)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work_until_finished, devices))

    federation.stop()
    releases = federation.releases()
    assert [release.contribution_count for release in releases] == [2] * 8
    # Four work at a time and two make a release: somebody is always a release behind.
    assert sum("mean_staleness" in release.metrics for release in releases) > 3
    assert "cannot be closed" not in federation.log


def test_a_slow_device_counts_for_less_a_stale_one_is_refused_and_a_kill_loses_neither(
    make_federation: Make,
) -> None:
    federation = make_federation(cap=3, more_rounds=BUFFERED)
    federation.start()
    one, two, slow, stale = federation.enrol(4)
    orders = {device.name: device.check_in() for device in (one, two, slow, stale)}
    first = [(device, next_lease(orders[device.name])) for device in (one, two)]
    too_slow = next_lease(orders[stale.name])
    declined = next_lease(orders[slow.name])
    slow.stub.RefusePlan(pb.RefusePlanRequest(lease_nonce=declined.nonce, code="test"))

    assert [device.take_part(lease) for device, lease in first] == [1, 1]
    second = [(device, next_lease(orders[device.name])) for device in (one, two)]
    late = next_lease(orders[slow.name])
    slow.receive(late)
    sealed = slow.seal_update(late)
    # Nobody waits for those two.
    assert [device.take_part(lease) for device, lease in second] == [2, 2]
    newest = next_lease(orders[one.name])
    assert [lease.round_number for lease in (too_slow, late, newest)] == [1, 2, 3]

    # Begun before release 1, and two were made: it is told, and what it sends is refused.
    ended = next(iter(orders[stale.name]))
    assert ended.lease_ended.nonce == too_slow.nonce
    with pytest.raises(grpc.RpcError) as refused:
        stale.open_upload(too_slow, bytes(16), too_slow.upload_bytes)
    assert code_of(refused.value) == "stale"
    # Begun before release 2: it counts in release 3, and is on the disk from its answer on.
    assert slow.send(late, *sealed) == 3
    federation.kill()
    federation.start()
    for device in (one, slow, stale):
        device.close()
        device.connect()
    again = one.check_in()
    third = next_lease(again)
    assert slow.commit(late, sealed[1]) == 3
    assert one.take_part(third) == 3
    wait_finished(again)

    federation.stop()
    releases = federation.releases()
    assert [release.contribution_count for release in releases] == [2, 2, 2]
    assert releases[2].metrics["mean_staleness"] == 0.5
    assert releases[2].metrics["largest_staleness"] == 1
    digest = released(federation, first, second, [(slow, late), (one, third)])
    assert releases[-1].parameters_sha256.hex() == digest
    assert not any(path.is_file() for path in federation.folder.updates.rglob("*"))


def test_a_drain_ends_work_that_no_later_process_would_know(make_federation: Make) -> None:
    federation = make_federation(cap=3, more_rounds=BUFFERED)
    federation.start()
    one, two, slow = federation.enrol(3)
    first, second, waiting = (device.check_in() for device in (one, two, slow))
    leases = [next_lease(orders) for orders in (first, second, waiting)]

    Operated(federation.root).drain()
    one.take_part(leases[0])
    two.take_part(leases[1])

    ended, sent_away = next(iter(waiting)), next(iter(waiting))
    assert ended.lease_ended == pb.LeaseEnded(nonce=leases[2].nonce, reason="draining")
    assert sent_away.retry_after.reason == "draining"


def test_the_end_of_a_run_ends_work_that_will_not_count(
    make_federation: Make, tmp_path: Path
) -> None:
    text = tmp_path / "public.txt"
    text.write_text("good morning to you\n" * 5)
    federation = make_federation(
        cap=9,
        more_rounds=BUFFERED,
        tables=f'[evaluation]\nkind = "public"\npublic_text = "{text}"\n'
        "[convergence]\npatience = 1\nleast_improvement = 0.9\n",
    )
    federation.start()
    one, two, slow = federation.enrol(3)
    first, second = one.check_in(), two.check_in()
    for device, orders in ((one, first), (two, second)):
        device.take_part(next_lease(orders))
    leases = [next_lease(orders) for orders in (first, second)]
    waiting = slow.check_in()
    lease = next_lease(waiting)
    assert lease.round_number == 2

    one.take_part(leases[0])
    two.take_part(leases[1])

    # Its update would be one release old, which may count; but the model no longer improves.
    ended, sent_away = next(iter(waiting)), next(iter(waiting))
    assert ended.lease_ended == pb.LeaseEnded(nonce=lease.nonce, reason="the run is over")
    assert sent_away.retry_after.reason == "finished"
    assert len(federation.releases()) == 2
