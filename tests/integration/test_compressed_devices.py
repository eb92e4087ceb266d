"""Compressed updates over the wire: what real devices send, keep and feed back."""

import contextlib
import time
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from edge_client.owner.traffic import Traffic
from edge_client.personalisation.state import read_state
from models.compression.release_delta import encode_delta
from models.compression.update_format import update_format
from privacy.sealing.envelope import sealed_bytes
from server.config.federation import read_config
from server.config.plans import make_plan
from server.records.failpoints import Failpoint
from tests.integration.conftest import Make, MakeDevices
from tests.integration.federation import Federation
from tests.integration.personal_federation import Simulated
from tests.integration.real_device import (
    RealDevice,
    await_line,
    await_rounds,
    children_of,
    is_running,
    set_floor,
)
from tests.integration.test_personal_devices import SimulatedDevices
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("processes")

DAY_S = 86_400
SQUEEZED = '[compression]\nuplink = "int8"\nentropy = "zstd"\n'
IN_TURN = '[compression]\nuplink = "int8"\nlayer_groups = 2\n'
MOVES = '[compression]\nuplink = "none"\ndownlink = "delta"\ndownlink_step = 0.0009765625\n'
FEEDS_BACK = '[compression]\nuplink = "int4"\nblock_size = 64\nerror_feedback = true\n'


def test_compressed_rounds_end_where_a_simulation_does_though_both_ends_die(
    make_federation: Make, make_devices: MakeDevices
) -> None:
    federation = make_federation(cap=3, cohort=2, quorum=1, clipping_norm=0.05, tables=FEEDS_BACK)
    federation.start()
    devices = make_devices(federation, 2)
    for device in devices:
        set_floor(device, least_cohort=1)
    devices[0].start()
    await_line(devices[0], "round 1: update delivered")
    plan = make_plan(federation.config, "0" * 32)
    (sealed,) = (path for path in federation.folder.updates.rglob("*.sealed"))
    assert sealed.stat().st_size == sealed_bytes(update_format(plan, 1).payload_bytes)

    federation.kill()
    devices[0].kill()
    federation.start()
    for device in devices:
        device.start()
    await_rounds(federation, 3)

    clients = SimulatedDevices(federation.config, devices)
    simulated = Simulated(federation.config, clients.names, clients.train)
    assert _released(federation) == simulated.run(3)

    def is_kept(name: str, device_number: int) -> bool:
        path = devices[device_number].folder / "personal" / "current.state"
        kept, expected = read_state(path, clients.trainer.layout), clients.personal[name]
        assert kept is not None
        assert kept.residual is not None
        assert expected is not None
        assert expected.residual is not None
        return torch.equal(kept.residual, expected.residual)

    for number, name in enumerate(clients.names):
        until(lambda name=name, number=number: is_kept(name, number))  # type: ignore[misc]


@pytest.mark.parametrize("tables", [SQUEEZED, IN_TURN])
def test_rounds_of_updates_of_varying_size_end_where_a_simulation_does(
    make_federation: Make, make_devices: MakeDevices, tables: str
) -> None:
    federation = make_federation(cap=2, cohort=2, quorum=2, tables=tables)
    federation.start()
    devices = make_devices(federation, 2)

    for device in devices:
        device.start()
    await_rounds(federation, 2)

    assert _released(federation) == _simulated(federation, devices, rounds=2)


def test_releases_that_come_as_what_changed_end_where_a_simulation_does_though_one_is_damaged(
    make_federation: Make, make_devices: MakeDevices
) -> None:
    begun = time.time()
    federation = make_federation(cap=3, cohort=2, quorum=2, tables=MOVES)
    federation.start()
    devices = make_devices(federation, 2)
    for device in devices:
        device.start()
    await_rounds(federation, 1)
    # The second round may have begun with what was held; the third finds out, and starts whole.
    agent = devices[0].process
    assert agent is not None
    children = trainers_of(agent.pid)
    assert children
    devices[0].kill()
    until(lambda: not any(is_running(child) for child in children))
    for held in (devices[0].folder / "held").glob("*.release"):
        content = bytearray(held.read_bytes())
        content[100] ^= 1
        held.write_bytes(content)
    devices[0].start()
    await_rounds(federation, 3)

    releases = _released(federation)
    clients = SimulatedDevices(federation.config, devices)
    simulated = Simulated(federation.config, clients.names, clients.train)
    received, digests = [], []
    for _ in range(3):
        received.append(simulated.received_by(clients.names[1]).numpy())
        digests = simulated.run(1)
    assert releases == digests
    # The device that lost nothing fetched one whole model, and twice what changed since.
    schema, step = federation.config.schema, 2.0**-10
    ways = [
        encode_delta(schema, None, received[0], step),
        *(encode_delta(schema, base, release, step) for base, release in pairwise(received)),
    ]
    traffic = Traffic(devices[1].folder / "traffic.json").today
    # It is counted by day, which may have ended meanwhile.
    if time.time() // DAY_S == begun // DAY_S:
        assert traffic.bytes_down == sum(sealed_bytes(len(way)) for way in ways)
    # The last round's model is what was released after the second.
    until(lambda: _held(devices[0]) == _held(devices[1]) == releases[-2].hex())


@pytest.mark.parametrize(
    ("killed", "before", "after"),
    [
        (Failpoint.BLOB_RENAMED, "", SQUEEZED),
        (Failpoint.COMMITTED, "", SQUEEZED),
        (Failpoint.COMMITTED, "learning_rate = 1.0", "learning_rate = 0.5"),
    ],
)
def test_settings_may_change_though_an_update_waits_or_counts_that_was_made_before(
    make_federation: Make, make_devices: MakeDevices, killed: Failpoint, before: str, after: str
) -> None:
    federation = make_federation(cap=2, cohort=2, quorum=2)
    federation.start(killed)
    devices = make_devices(federation, 2)
    for device in devices:
        device.start()
    federation.wait_killed()
    assert any(federation.folder.updates.rglob("*.sealed"))

    settings = federation.folder.config
    text = settings.read_text()
    settings.write_text(text.replace(before, after) if before else f"{text}\n{after}")
    federation.config = read_config(settings)
    federation.start()
    await_rounds(federation, 2)

    # It counts no more: its round is tried again, and everybody trains for that by the new plan.
    assert "round 1, attempt 0: the settings have changed its plan" in federation.log
    assert _released(federation) == _simulated(federation, devices, rounds=2)


def test_a_cap_below_the_open_round_ends_the_run(
    make_federation: Make, make_devices: MakeDevices
) -> None:
    federation = make_federation(cap=2, cohort=2, quorum=2)
    federation.start(f"{Failpoint.COMMITTED}:3")
    devices = make_devices(federation, 2)
    for device in devices:
        device.start()
    federation.wait_killed()

    settings = federation.folder.config
    settings.write_text(settings.read_text().replace("cap = 2", "cap = 1"))
    federation.config = read_config(settings)
    federation.start()

    for device in devices:
        await_line(device, ": finished")
    assert "round 2, attempt 0: the settings have lowered rounds.cap below it" in federation.log
    assert _released(federation) == _simulated(federation, devices, rounds=1)
    assert not any(federation.folder.updates.rglob("*.sealed"))


def trainers_of(agent: int) -> list[int]:
    """Return the processes that read their jobs from a pipe of an agent, forked as it was."""

    def pipes_of(pid: int, descriptor: str) -> set[str]:
        found = set()
        for path in (Path("/proc") / str(pid) / "fd").glob(descriptor):
            with contextlib.suppress(FileNotFoundError):
                found.add(str(path.readlink()))
        return {name for name in found if name.startswith("pipe:")}

    parent = int((Path("/proc") / str(agent) / "stat").read_text().rpartition(")")[2].split()[1])
    given = pipes_of(agent, "*")
    return [pid for pid in children_of(parent) if pid != agent and pipes_of(pid, "0") & given]


def _released(federation: Federation) -> list[bytes]:
    return [release.parameters_sha256 for release in federation.releases()]


def _simulated(federation: Federation, devices: list[RealDevice], *, rounds: int) -> list[bytes]:
    clients = SimulatedDevices(federation.config, devices)
    return Simulated(federation.config, clients.names, clients.train).run(rounds)


def _held(device: RealDevice) -> str | None:
    names = [path.stem for path in (device.folder / "held").glob("*.release")]
    return names[0] if len(names) == 1 else None
