"""What the guide says of a device that was revoked or away for too long works as it is written."""

import time
from pathlib import Path

import pytest

from edge_client.cli import main
from edge_client.folder.layout import DeviceFolder
from privacy.identities.party import Identity
from server.devices.clients import list_clients, revoke_client
from server.records.store import open_store
from tests.forking import ForkedCommand
from tests.integration.conftest import Make
from tests.integration.real_device import TEXTS, RealDevice, await_line


@pytest.mark.usefixtures("no_forks_left")
def test_a_revoked_device_enrols_again_in_its_own_folder_and_takes_part(
    make_federation: Make, tmp_path: Path
) -> None:
    federation = make_federation(cap=1, cohort=1, quorum=1)
    federation.start()
    device = RealDevice(tmp_path / "device", TEXTS[0])
    device.enrol(federation.invite()[0])
    floor = device.folder / "floor.toml"
    floor.write_text(floor.read_text().replace("least_cohort = 2", "least_cohort = 1"))
    own = floor.read_text()
    store = open_store(federation.config.store)
    revoke_client(store, "device-0001", now=time.time())

    again = ("enrol", str(device.folder), "--invite")
    log = tmp_path / "again.log"
    (invite,) = federation.invite(client="device-0001")
    status = ForkedCommand(main, [*again, str(invite)], log).wait(60)

    assert status == 0, log.read_text()
    assert "enrolled as device-0001" in log.read_text()
    assert floor.read_text() == own
    assert Identity.load(DeviceFolder(device.folder).identity).previous_wrapping is not None
    device.start("--once")
    try:
        await_line(device, "update delivered")
    finally:
        device.stop()
    (known,) = list_clients(store)
    assert (known.name, known.revoked_at) == ("device-0001", None)
    store.close()
