"""A coordinator that comes back at another of its addresses: its devices follow."""

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_client.folder.layout import DeviceFolder
from edge_client.wire.addresses import SILENCE_S
from server.cli import main
from tests.integration.conftest import Make
from tests.integration.federation import Federation
from tests.integration.real_device import TEXTS, RealDevice, await_rounds, set_floor
from tests.integration.simulated_run import simulated
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("processes")

# Two machines, as far as a socket can tell: the whole of 127.0.0.0/8 is this one.
FIRST, SECOND = "127.0.0.1", "127.0.0.2"


@contextlib.contextmanager
def silent(address: str) -> Iterator[None]:
    """Accept connections at an address and never say a word, as a machine that hangs does."""
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port))):
        yield


def bytes_up(device: RealDevice) -> int:
    counted = device.folder / "traffic.json"
    return int(json.loads(counted.read_text())["bytes_up"]) if counted.exists() else 0


def size_in(folder: Path) -> int:
    """Return the size of the only large file in a folder."""
    (size,) = (path.stat().st_size for path in folder.iterdir() if path.stat().st_size > 1 << 20)
    return size


def move(federation: Federation, here: str, there: str) -> None:
    """Let another machine serve the folder from now on."""
    text = federation.folder.config.read_text()
    for listener in ("enrolment", "devices"):
        text = text.replace(f'{listener} = "{here}:', f'{listener} = "{there}:')
    federation.folder.config.write_text(text)


def test_a_round_that_broke_in_mid_upload_ends_at_another_address(
    make_federation: Make, tmp_path: Path
) -> None:
    federation = make_federation(cap=1, quorum=1, words=1000, hidden=256)
    names = ["--hostname", FIRST, "--hostname", SECOND]
    assert main(["rotate-keys", str(federation.root), *names]) == 0
    invites = tmp_path / "invites"
    assert main(["token", str(federation.root), "--count", "2", "--out", str(invites)]) == 0
    move(federation, FIRST, SECOND)
    # It dies at the 16th piece of 128 KiB; what is certain to lie in its file is the first MiB.
    federation.start("mid_chunk:15")
    devices = [RealDevice(tmp_path / f"device{index}", TEXTS[index]) for index in range(2)]
    first, second = sorted(invites.iterdir())
    # At the preferred address somebody accepts and says nothing, then nobody listens.
    with silent(federation.config.listen.enrolment):
        began = time.monotonic()
        devices[0].enrol(first)
        assert time.monotonic() - began > SILENCE_S
    devices[1].enrol(second)
    for device in devices:
        set_floor(device, least_cohort=1)
    try:
        devices[0].start()
        federation.wait_killed()
        before = until(lambda: bytes_up(devices[0]))
        sealed, arrived = (
            size_in(folder) for folder in (devices[0].folder / "outbox", federation.folder.uploads)
        )

        move(federation, SECOND, FIRST)
        federation.start()
        devices[1].start()
        await_rounds(federation, 1)
    finally:
        for device in devices:
            device.stop()

    expected = simulated(federation.config, [device.data for device in devices], rounds=1)
    assert [release.parameters_sha256 for release in federation.releases()] == expected
    # The other machine was sent what the first had not got: the folder is the same.
    assert arrived >= 1 << 20
    assert bytes_up(devices[0]) - before == sealed - arrived
    port = federation.config.listen.devices.rpartition(":")[2]
    addresses = (f"{FIRST}:{port}", f"{SECOND}:{port}")
    assert DeviceFolder(devices[1].folder).enrolment().device_addresses == addresses
    # The command says where the device will look.
    assert f"enrolled as device-0001 at {' or '.join(addresses)}" in devices[0].log.read_text()
