"""A coordinator whose disk fills up while a round closes loses nothing of the round."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import Make
from tests.integration.device import next_lease
from tests.integration.federation import Federation
from tests.integration.real_device import await_rounds
from tests.integration.test_round import expected_digest

pytestmark = pytest.mark.xdist_group("full disk")

# Every new file whose path ends so lies on a device that has no room: the kernel's own ENOSPC.
PROGRAM = """
import os, sys
full, opened = sys.argv[1], os.open

def open_without_room(path, flags, *more, **named):
    if flags & os.O_CREAT and os.fspath(path).endswith(full):
        return opened("/dev/full", os.O_WRONLY)
    return opened(path, flags, *more, **named)

from server.cli import main
print("patched", flush=True)
os.open = open_without_room
sys.exit(main(["run", sys.argv[2]]))
"""


class FullDiskCommand:
    """Hold ``sotto-server run`` on a disk that has no room for one file."""

    def __init__(self, root: Path, full: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", PROGRAM, full, str(root)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "patched\n"
        assert self.process.stdout.readline().startswith("enrolment on port")

    def last_line(self) -> str:
        """Wait for its end and return what it told the operator."""
        _, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == 1
        return errors.splitlines()[-1]


def commit_all(federation: Federation) -> list[str]:
    """Let two devices commit to round 1; the coordinator may die of the second commit."""
    devices = federation.enrol(2)
    streams = [device.check_in() for device in devices]
    for device, orders in zip(devices, streams, strict=True):
        device.take_part(next_lease(orders))
    return [device.name for device in devices]


def sealed_updates(federation: Federation) -> int:
    return sum(path.is_file() for path in federation.folder.updates.rglob("*"))


@pytest.mark.parametrize("full", ["parameters.bin", "release.json"])
def test_a_round_that_found_no_room_closes_after_room_was_made(
    make_federation: Make, full: str
) -> None:
    federation = make_federation(cap=1)
    command = FullDiskCommand(federation.root, f"-000001/{full}")
    names = commit_all(federation)

    told = command.last_line()

    assert re.fullmatch(
        rf"sotto-server: the disk of {re.escape(str(federation.root))} is full \(\d+ MiB free\); "
        rf"make room and run `sotto-server run {re.escape(str(federation.root))}` again: .*",
        told,
    )
    # Nothing was released, and what was acknowledged waits, sealed.
    assert federation.releases() == []
    assert sealed_updates(federation) == 2
    assert not (federation.folder.releases / "000001").exists()
    # With room again the round closes, with the devices away, in the model it had to end in.
    federation.start()
    await_rounds(federation, 1)
    (release,) = federation.releases()
    assert release.contribution_count == 2
    assert release.parameters_sha256.hex() == expected_digest(federation, names, 1)


def test_no_room_behind_a_round_stops_the_next_close_and_loses_neither(
    make_federation: Make,
) -> None:
    federation = make_federation(cap=2)
    federation.folder.metrics.symlink_to("/dev/full")
    command = FullDiskCommand(federation.root, "no file at all")
    devices = federation.enrol(2)
    streams = [device.check_in() for device in devices]
    for _ in range(2):
        for device, orders in zip(devices, streams, strict=True):
            device.take_part(next_lease(orders))

    assert command.last_line().startswith("sotto-server: the disk of ")

    federation.folder.metrics.unlink()
    federation.start()
    await_rounds(federation, 2)
    releases = federation.releases()
    assert [release.contribution_count for release in releases] == [2, 2]
    names = [device.name for device in devices]
    assert releases[-1].parameters_sha256.hex() == expected_digest(federation, names, 2)
