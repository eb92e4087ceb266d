"""A federation on loopback: its folder, its coordinator's process, its devices."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from server.folder import ServerFolder
from server.founding import found, write_invites
from server.releases import ReleaseSummary, list_releases
from server.store import open_store
from tests.integration.device import Device, enrol

ROOT = Path(__file__).parents[2]
START_TIMEOUT_S = 60.0

SETTINGS = """
seed = 1

[model]
family = "gru_lm"
vocabulary_size = {words}
hidden_size = {hidden}
tied = true

[vocabulary]
name = "english-10k"
size = {words}

[training]
optimiser = "sgd"
learning_rate = 1.0
batch_size = 4
bptt_steps = 10
example_cap = 1000

[privacy]
mode = "none"
clipping_norm = 100.0

[aggregation]
rule = "attentive"
attention_strength = 0.5
server_step_size = 1.0

[rounds]
cap = {cap}
cohort_size = {cohort}
quorum = {quorum}
deadline_s = {deadline}
{more_rounds}

[listen]
enrolment = "127.0.0.1:{enrolment}"
devices = "127.0.0.1:{devices}"
{tables}
"""


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for opened in sockets:
            opened.bind(("127.0.0.1", 0))
        return [opened.getsockname()[1] for opened in sockets]
    finally:
        for opened in sockets:
            opened.close()


def settings(**changes: object) -> str:
    """Return a small federation's TOML on free ports."""
    enrolment, devices = free_ports(2)
    values: dict[str, object] = {
        "words": 200,
        "hidden": 8,
        "cap": 100,
        "cohort": 2,
        "quorum": 2,
        "deadline": 60.0,
        "more_rounds": "",
        "tables": "",
        "enrolment": enrolment,
        "devices": devices,
    }
    return SETTINGS.format(**(values | changes))


class Federation:
    """Hold one federation; the coordinator runs between ``start`` and ``stop``."""

    def __init__(self, root: Path, text: str) -> None:
        self.root = root
        self.config = found(root, text, [])
        self.folder = ServerFolder(root)
        self.process: subprocess.Popen[str] | None = None
        self.devices: list[Device] = []

    def start(self, failpoint: str | None = None) -> None:
        """Start the coordinator and wait until it listens."""
        command = [sys.executable, "-P", "-m", "server.cli", "run", str(self.root)]
        if failpoint is not None:
            script = Path(__file__).with_name("serve_armed.py")
            command = [sys.executable, "-P", str(script), str(self.root), failpoint]
        log = (self.root.parent / f"{self.root.name}.log").open("ab")
        with log:
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "devices on port" in line, self.log

    @property
    def log(self) -> str:
        """What the coordinator wrote to stderr."""
        return (self.root.parent / f"{self.root.name}.log").read_text()

    def invite(self, count: int = 1, client: str | None = None) -> list[Path]:
        return write_invites(
            self.folder, self.config, self.root.parent / "invites", count=count, client=client
        )

    def enrol(self, count: int) -> list[Device]:
        """Enrol devices with the running coordinator."""
        new = [
            enrol(invite, self.root.parent / f"{self.root.name}-{invite.stem}")
            for invite in self.invite(count)
        ]
        self.devices += new
        return new

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ``sotto-server COMMAND DIR ...``."""
        first, *rest = arguments
        return subprocess.run(
            [sys.executable, "-P", "-m", "server.cli", first, str(self.root), *rest],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def releases(self) -> list[ReleaseSummary]:
        """Return every released round, read from the store."""
        store = open_store(self.config.store)
        try:
            return list_releases(store)
        finally:
            store.close()

    def wait_killed(self) -> None:
        """Wait until the coordinator has died of its failpoint."""
        assert self.process is not None
        assert self.process.wait(timeout=30) == -signal.SIGKILL, self.log

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self._close()

    def stop(self) -> None:
        """End the coordinator, if it runs, and every connection to it."""
        for device in self.devices:
            device.close()
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.kill()
        self._close()

    def _close(self) -> None:
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()


def reopen(federation: Federation) -> None:
    """Give every device a fresh connection, as after a restart of the coordinator."""
    for device in federation.devices:
        device.close()
        device.connect()
