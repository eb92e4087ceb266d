"""A coordinator short of disk or descriptors while a round closes waits, and loses nothing."""

import os
import re
import resource
import signal
from pathlib import Path
from typing import Any

import pytest

from protos import federation_pb2 as pb
from server.cli import main
from tests.forking import ForkedCommand
from tests.integration.conftest import Make
from tests.integration.device import Device, next_lease
from tests.integration.federation import Federation
from tests.integration.real_device import await_rounds
from tests.integration.test_round import expected_digest
from tests.waiting import until

pytestmark = [pytest.mark.xdist_group("full disk"), pytest.mark.usefixtures("no_forks_left")]


def run_short(arguments: list[str]) -> int:
    """Run ``sotto-server run`` where a file has no room, and return its status.

    Every new file whose path ends so lies on a device that has no room, the kernel's own ENOSPC,
    for as long as the mark is there.
    """
    full, mark, root = arguments
    opened = os.open

    def open_without_room(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_CREAT and os.fspath(path).endswith(full) and Path(mark).exists():
            return opened("/dev/full", os.O_WRONLY)
        return opened(path, flags, *more, **named)

    os.open = open_without_room
    return main(["run", root])


class ShortCommand:
    """Hold ``sotto-server run`` on a disk that has no room for one file until room is made."""

    def __init__(self, root: Path, full: str) -> None:
        self.mark = root.parent / "no room"
        self.mark.touch()
        self._log = root.parent / "short.log"
        self._log.touch()
        self.process = ForkedCommand(run_short, [full, str(self.mark), str(root)], self._log)
        self.await_line("enrolment on port")

    @property
    def log(self) -> str:
        return self._log.read_text()

    def await_line(self, line: str) -> None:
        """Wait until the operator is told."""

        def is_told() -> bool:
            assert self.process.poll() is None, self.log
            return re.search(line, self.log) is not None

        until(is_told)

    def end(self) -> None:
        """End it as its operator would, and see that it had not ended by itself."""
        assert self.process.poll() is None, self.log
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0


def commit_all(federation: Federation, devices: list[Device]) -> None:
    """Let two devices commit to round 1."""
    streams = [device.check_in() for device in devices]
    for device, orders in zip(devices, streams, strict=True):
        device.take_part(next_lease(orders))


def sealed_updates(federation: Federation) -> int:
    return sum(path.is_file() for path in federation.folder.updates.rglob("*"))


@pytest.mark.parametrize("full", ["parameters.bin", "release.json"])
def test_a_round_that_found_no_room_closes_by_itself_after_room_was_made(
    make_federation: Make, full: str
) -> None:
    federation = make_federation(cap=1)
    command = ShortCommand(federation.root, f"-000001/{full}")
    devices = federation.enrol(2)
    commit_all(federation, devices)

    command.await_line("the release of round 1 waits for room on the disk")

    # Nothing was released, and what was acknowledged waits, sealed.
    assert federation.releases() == []
    assert sealed_updates(federation) == 2
    assert not (federation.folder.releases / "000001").exists()
    # With room again the round closes, in the same process, in the model it had to end in.
    command.mark.unlink()
    await_rounds(federation, 1)
    (release,) = federation.releases()
    assert release.contribution_count == 2
    names = [device.name for device in devices]
    assert release.parameters_sha256.hex() == expected_digest(federation, names, 1)
    command.end()


def test_no_room_behind_a_round_delays_the_next_close_and_loses_neither(
    make_federation: Make,
) -> None:
    federation = make_federation(cap=2)
    federation.folder.metrics.symlink_to("/dev/full")
    command = ShortCommand(federation.root, "no file at all")
    devices = federation.enrol(2)
    streams = [device.check_in() for device in devices]
    for _ in range(2):
        for device, orders in zip(devices, streams, strict=True):
            device.take_part(next_lease(orders))

    command.await_line("what follows the release of round 1 waits for room on the disk")

    assert len(federation.releases()) == 1
    federation.folder.metrics.unlink()
    await_rounds(federation, 2)
    releases = federation.releases()
    assert [release.contribution_count for release in releases] == [2, 2]
    names = [device.name for device in devices]
    assert releases[-1].parameters_sha256.hex() == expected_digest(federation, names, 2)
    until(lambda: federation.folder.metrics.read_bytes().count(b"\n") == 2)
    command.end()


def test_a_round_that_closes_without_a_descriptor_left_waits_and_loses_no_update(
    make_federation: Make,
) -> None:
    federation = make_federation(cap=1, quorum=1)
    command = ShortCommand(federation.root, "no file at all")
    pid = command.process.pid
    devices = federation.enrol(2)
    streams = [device.check_in() for device in devices]
    lease, other_lease = (next_lease(orders) for orders in streams)
    devices[0].take_part(lease)
    # It keeps what it holds open; from now on nothing more opens, and without the other device the
    # round closes with the one update.
    held = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    in_use = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
    least_free = next(number for number in range(len(in_use) + 1) if number not in in_use)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (least_free, held[1]))

    refusal = pb.RefusePlanRequest(lease_nonce=other_lease.nonce, code="busy")
    devices[1].stub.RefusePlan(refusal, timeout=60)
    command.await_line("round 1 waits for descriptors")

    assert federation.releases() == []
    assert sealed_updates(federation) == 1
    resource.prlimit(pid, resource.RLIMIT_NOFILE, held)
    await_rounds(federation, 1)
    (release,) = federation.releases()
    assert release.contribution_count == 1
    command.end()
