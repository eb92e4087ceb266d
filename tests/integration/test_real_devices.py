"""Real agents with their training processes, against a real coordinator."""

import hashlib

import pytest

from edge_client.folder.layout import DeviceFolder
from models.networks.flat_parameters import initial_parameters
from models.plan.release_record import RECORD_FILE
from models.plan.signed_plan import SignedPlan
from server.releases.files import read_release
from tests.integration.conftest import Make, MakeDevices
from tests.integration.real_device import (
    await_line,
    await_rounds,
    children_of,
    is_running,
    set_floor,
)
from tests.integration.simulated_run import simulated
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("processes")


def test_simulated_and_deployed_rounds_end_in_the_same_bits(
    make_federation: Make, make_devices: MakeDevices
) -> None:
    federation = make_federation(cap=3, cohort=3, quorum=3)
    federation.start()
    devices = make_devices(federation, 3)

    for index, device in enumerate(devices):
        device.start(is_forked=index > 0)
    await_rounds(federation, 3)

    expected = simulated(federation.config, [device.data for device in devices], rounds=3)
    assert [release.parameters_sha256 for release in federation.releases()] == expected
    # Either side can show what was asked for: the plan that each device keeps with the
    # coordinator's signature is the one in the release, whose digest is in the signed record.
    released = (federation.folder.releases / "000003" / "plan.json").read_bytes()
    record = (federation.folder.releases / "000003" / RECORD_FILE).read_text()
    assert hashlib.sha256(released).hexdigest() in record
    for device in devices:
        folder = DeviceFolder(device.folder)
        told = SignedPlan.decode(folder.signed_plan() or b"")
        assert told.check(folder.enrolment().ca_certificate).role == "coordinator"
        assert (told.round_number, told.plan) == (3, released)


def test_simulated_and_deployed_rounds_clip_alike_where_the_norm_follows_the_clients(
    make_federation: Make, make_devices: MakeDevices
) -> None:
    # Small enough that every tensor is clipped: the bits depend on each round's own norm.
    federation = make_federation(
        cap=2,
        clipping_norm=0.01,
        more_privacy='clipping = "per-layer"\nadaptive_clipping = { count_noise_std = 0.5 }',
    )
    federation.start()
    devices = make_devices(federation, 2)

    for device in devices:
        device.start()
    await_rounds(federation, 2)

    expected = simulated(federation.config, [device.data for device in devices], rounds=2)
    releases = federation.releases()
    assert [release.parameters_sha256 for release in releases] == expected
    assert len({release.metrics["clipping_norm"] for release in releases}) == 2
    assert [release.metrics["clipped"] for release in releases] == [0, 0]


def test_frozen_tensors_stay_in_a_deployment_as_in_a_simulation(
    make_federation: Make, make_devices: MakeDevices
) -> None:
    federation = make_federation(cap=2, more_training='frozen = ["embedding"]')
    federation.start()
    devices = make_devices(federation, 2)

    for device in devices:
        device.start()
    await_rounds(federation, 2)

    expected = simulated(federation.config, [device.data for device in devices], rounds=2)
    assert [release.parameters_sha256 for release in federation.releases()] == expected
    ended = read_release(federation.folder.releases / "latest").parameters
    started = initial_parameters(federation.config.model, federation.config.seed).numpy()
    rows = 200 * 8
    assert (ended[:rows] == started[:rows]).all()
    assert (ended[rows:] != started[rows:]).any()


def test_a_coordinator_killed_in_mid_round_ends_where_an_undisturbed_one_does(
    make_federation: Make, make_devices: MakeDevices
) -> None:
    federation = make_federation(cap=3, cohort=2, quorum=1)
    federation.start()
    devices = make_devices(federation, 2)
    for device in devices:
        set_floor(device, least_cohort=1)
    # A quorum of one opens the round for the first device alone; its update
    # lies committed when the coordinator dies.
    devices[0].start()
    await_line(devices[0], "update delivered")

    federation.kill()
    federation.start()
    devices[1].start()
    await_rounds(federation, 3)

    expected = simulated(federation.config, [device.data for device in devices], rounds=3)
    assert [release.parameters_sha256 for release in federation.releases()] == expected
    # The committed update was not asked for again.
    assert devices[0].log.read_text().count("round 1: update delivered") == 1


def test_a_device_killed_while_it_trains_comes_back_into_the_same_round(
    make_federation: Make, make_devices: MakeDevices
) -> None:
    federation = make_federation(cap=1, cohort=2, quorum=1)
    federation.start()
    devices = make_devices(federation, 2)
    for device in devices:
        set_floor(device, least_cohort=1)
    devices[0].start()
    await_line(devices[0], "train started")

    devices[0].kill()
    for device in devices:
        device.start()
    await_rounds(federation, 1)

    expected = simulated(federation.config, [device.data for device in devices], rounds=1)
    assert [release.parameters_sha256 for release in federation.releases()] == expected
    assert [release.attempt for release in federation.releases()] == [0]


def test_a_killed_agent_leaves_no_training_process(
    make_federation: Make, make_devices: MakeDevices
) -> None:
    federation = make_federation(cap=1, cohort=2, quorum=1)
    federation.start()
    device = make_devices(federation, 2)[0]
    set_floor(device, least_cohort=1)
    device.start(is_forked=False)
    # The other device never comes, so the round goes on and the training process stays warm.
    await_line(device, "update delivered")
    assert device.process is not None
    pid = device.process.pid
    children = until(lambda: children_of(pid))

    device.kill()

    until(lambda: not any(is_running(child) for child in children))
