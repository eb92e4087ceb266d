"""Devices as their owners run them: the command ``sotto-client``, in processes of its own.

Most tests fork them (``tests/forking.py``); ``is_forked=False`` starts the command.
"""

import contextlib
import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TypeVar

from edge_client.cli import main
from tests.forking import ForkedCommand
from tests.integration.federation import Federation
from tests.waiting import until

LIMIT_S = 110.0
Found = TypeVar("Found")
TEXTS = (
    "the train is late again\ni will be home at eight\ncan you buy bread and milk\n",
    "see you at the station\nthe game was good last night\ncall me when you are home\n",
    "i do not know what to say\nthank you so much for the book\nit was good to see you\n",
)


class RealDevice:
    """Hold one device's folder and, between ``start`` and ``stop``, its agent."""

    def __init__(self, folder: Path, text: str) -> None:
        self.folder = folder
        self.data = folder.parent / f"{folder.name}-text"
        self.data.mkdir()
        (self.data / "messages.txt").write_text(text * 4)
        self.log = folder.parent / f"{folder.name}.log"
        self.process: subprocess.Popen[bytes] | ForkedCommand | None = None

    def enrol(self, invite: Path, *more: str) -> None:
        """Enrol with what the command calls, in this process, whose keys cost little."""
        told = io.StringIO()
        mask = os.umask(0o077)
        try:
            with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
                arguments = ["--invite", str(invite), "--accept-no-guarantee", *more]
                assert main(["enrol", str(self.folder), *arguments]) == 0, told.getvalue()
        finally:
            os.umask(mask)
        with self.log.open("a") as log:
            log.write(told.getvalue())
        # The machine that runs the tests is never idle.
        (self.folder / "client.toml").write_text("keep_warm_s = 60.0\n[policy]\nidle = false\n")

    def start(self, *more: str, is_forked: bool = True) -> None:
        arguments = ["--verbose", "run", str(self.folder), "--data", str(self.data)]
        arguments += ["--device", "cpu", *more]
        if is_forked:
            self.process = ForkedCommand(main, arguments, self.log)
            return
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*_CLIENT, *arguments], stdout=log, stderr=subprocess.STDOUT
            )

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout=60)


_CLIENT = [sys.executable, "-P", "-m", "edge_client.cli"]


def set_floor(device: RealDevice, least_cohort: int) -> None:
    """Let a device accept cohorts of at least this many."""
    floor = device.folder / "floor.toml"
    floor.write_text(
        floor.read_text().replace("least_cohort = 2", f"least_cohort = {least_cohort}")
    )


def children_of(pid: int) -> list[int]:
    """Return the processes whose parent is ``pid``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[1]) == pid:
                found.append(int(entry.name))
    return found


def is_running(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        os.kill(pid, 0)
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def await_rounds(federation: Federation, count: int) -> None:
    until(lambda: sum(release.is_published for release in federation.releases()) >= count)


def await_line(device: RealDevice, line: str) -> None:
    until(lambda: device.log.exists() and line in device.log.read_text())
