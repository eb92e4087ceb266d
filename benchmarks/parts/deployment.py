"""Run a real federation on loopback: one coordinator, some devices, each a process of its own."""

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil
from sqlalchemy import Row, select

from edge_client.folder.layout import DeviceFolder
from edge_client.owner.pinned_helper import read_helper
from edge_client.owner.starting_floor import write_starting_floor
from edge_client.wire.enrolling import enrol_device
from privacy.identities.invite import read_invite
from protos import federation_pb2 as pb
from server.operating.founding import found, write_invites
from server.records.folder import ServerFolder
from server.records.store import open_store
from server.records.tables import releases
from server.services.admin_client import admin_stub

STOP_TIMEOUT_S = 10.0
_TEXT = "the train is late again\ni will be home at eight\ncan you buy bread and milk\n"
_CHECKOUT = Path(__file__).resolve().parents[2]
_SETTINGS = """
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
deadline_s = {deadline_s}
retry_limit = {retry_limit}

[listen]
enrolment = "127.0.0.1:{enrolment}"
devices = "127.0.0.1:{devices}"
"""


class BenchmarkError(RuntimeError):
    """Raised when a federation does not do what is to be measured."""


class Deployment:
    """Hold one federation below a folder; use it as a context manager.

    Attributes:
        root: The coordinator's folder.
        devices: The devices' processes, in the order in which they were started.
        coordinator: The coordinator's process.
        devices_port: Where it listens for enrolled devices.
        config: Its settings.
    """

    def __init__(
        self,
        folder: Path,
        *,
        words: int,
        hidden: int,
        cohort: int,
        quorum: int | None = None,
        deadline_s: float = 600.0,
        cap: int = 1_000_000,
        retry_limit: int = 3,
    ) -> None:
        """Found a federation.

        Args:
            folder: An empty folder.
            words: Size of the vocabulary.
            hidden: Width of the tied GRU.
            cohort: Devices of a round.
            quorum: Fewest updates of a round; the cohort if absent.
            deadline_s: Seconds of a round at most.
            cap: Rounds of the run.
            retry_limit: New attempts at a round that missed its quorum.
        """
        self.root = folder / "coordinator"
        self.devices: list[subprocess.Popen[bytes]] = []
        self.coordinator: subprocess.Popen[str] | None = None
        self._folder = folder
        self._cohort = cohort
        enrolment, self.devices_port = free_ports(2)
        settings = _SETTINGS.format(
            words=words,
            hidden=hidden,
            cohort=cohort,
            quorum=cohort if quorum is None else quorum,
            deadline_s=deadline_s,
            cap=cap,
            retry_limit=retry_limit,
            enrolment=enrolment,
            devices=self.devices_port,
        )
        self.config = found(self.root, self.changed(settings), [])

    def changed(self, settings: str) -> str:
        """Return the settings that are wanted, TOML, from those of this file."""
        return settings

    def __enter__(self) -> "Deployment":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_devices()
        if self.coordinator is not None:
            # SIGTERM would finish the round first, and its devices are gone.
            self.coordinator.send_signal(signal.SIGINT)
            _wait_or_kill(self.coordinator)

    def start_coordinator(self, *machine: str) -> None:
        """Start ``sotto-server run`` and wait until it listens.

        Args:
            machine: Module and arguments that run the command on a changed machine, if any.
        """
        with (self._folder / "coordinator.log").open("ab") as log:
            self.coordinator = subprocess.Popen(
                [sys.executable, "-m", *machine, "server.cli", "run", str(self.root)],
                cwd=_CHECKOUT,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        line = self.coordinator.stdout.readline() if self.coordinator.stdout else ""
        if "devices on port" not in line:
            raise BenchmarkError((self._folder / "coordinator.log").read_text())

    def enrol(self) -> None:
        """Enrol as many devices as a cohort has."""
        invites = write_invites(
            ServerFolder(self.root), self.config, self._folder / "invites", count=self._cohort
        )
        for number, path in enumerate(invites):
            folder, invite, helper = self.device_folder(number), read_invite(path), None
            if invite.helper is not None:
                ca = invite.ca_certificate
                helper = read_helper(invite.helper, authority=ca, now=None).sha256.hex()
            asyncio.run(enrol_device(folder, invite, now=time.time()))
            write_starting_floor(folder.floor, accepts_no_guarantee=True, helper=helper)

    def device_folder(self, number: int) -> DeviceFolder:
        """Return a device's folder; devices count from 0."""
        return DeviceFolder(self._folder / f"device-{number}")

    def start_idle_device(self, number: int, *arguments: str) -> None:
        """Start a device that does not train; see ``idle_device`` for the arguments."""
        self.start_device(
            number, "benchmarks.parts.idle_device", str(self.device_folder(number).path), *arguments
        )

    def start_device(self, number: int, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a device's agent, also one that has ended, and return its process."""
        with self.device_log(number).open("ab") as log:
            process = subprocess.Popen(
                # Not -P: an installed package named benchmarks would hide this one.
                [sys.executable, "-m", module, *arguments],
                cwd=_CHECKOUT,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.devices.append(process)
        return process

    def start_training_device(self, number: int, *machine: str) -> subprocess.Popen[bytes]:
        """Start ``sotto-client run`` on a few sentences, with a fresh process each round.

        Args:
            number: The device; they count from 0.
            machine: Module and arguments that run the command on a changed machine, if any.
        """
        device = self.device_folder(number)
        device.client_settings.write_text("keep_warm_s = 0.0\n[policy]\nidle = false\n")
        text = device.path / "messages"
        text.mkdir(exist_ok=True)
        (text / "messages.txt").write_text(_TEXT)
        module, *before = (*machine, "edge_client.cli")
        command = ("--verbose", "run", str(device.path), "--data", str(text), "--device", "cpu")
        return self.start_device(number, module, *before, *command)

    def device_log(self, number: int) -> Path:
        """Return the file to which a device's agent writes."""
        return self._folder / f"device-{number}.log"

    def stop_devices(self) -> None:
        """End every device's agent, and with it what it has started."""
        for process in self.devices:
            process.send_signal(signal.SIGTERM)
        for process in self.devices:
            _wait_or_kill(process)
        self.devices.clear()

    # Any row: the columns of the table of releases.
    def released(self) -> Sequence[Row[tuple[object, ...]]]:
        """Return every released round but the initial parameters, oldest first."""
        store = open_store(self.config.store)
        try:
            with store.read() as connection:
                return connection.execute(
                    select(releases).where(releases.c.round_number > 0).order_by("round_number")
                ).all()
        finally:
            store.close()

    def rounds_logged(self) -> int:
        """Return how many rounds the metrics file holds; cheap enough to ask often."""
        metrics = ServerFolder(self.root).metrics
        return metrics.read_bytes().count(b"\n") if metrics.exists() else 0

    def await_rounds(self, count: int, timeout_s: float) -> None:
        """Wait until that many rounds are released.

        Raises:
            BenchmarkError: If a process ends or the time is up.
        """
        wait_until(lambda: self.rounds_logged() >= count or self._ended(), timeout_s)
        if self.rounds_logged() < count:
            raise BenchmarkError(f"a process ended early; see the logs in {self._folder}")

    def _ended(self) -> bool:
        processes = (*self.devices, self.coordinator)
        return any(process is not None and process.poll() is not None for process in processes)

    def cpu_s(self) -> float:
        """Return the processor seconds that all processes and their ended children have used."""
        pids = [process.pid for process in (*self.devices, self.coordinator) if process]
        times = [psutil.Process(pid).cpu_times() for pid in pids]
        return sum(
            each.user + each.system + each.children_user + each.children_system for each in times
        )

    def status(self) -> pb.StatusResponse:
        """Ask the coordinator where the run stands."""
        with admin_stub(self.root / self.config.listen.admin_socket) as stub:
            return stub.Status(pb.StatusRequest())

    @property
    def has_ended(self) -> bool:
        """Return whether the coordinator has ended by itself."""
        return self.coordinator is not None and self.coordinator.poll() is not None

    def kill_coordinator(self) -> None:
        """End the coordinator as a power cut would."""
        if self.coordinator is not None:
            self.coordinator.kill()
            self.coordinator.wait()


def wait_until(condition: Callable[[], bool], timeout_s: float, every_s: float = 0.05) -> float:
    """Ask until something holds; return the seconds that took.

    Raises:
        BenchmarkError: If the time is up.
    """
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > timeout_s:
            raise BenchmarkError(f"nothing happened in {timeout_s:.0f} s")
        time.sleep(every_s)
    return time.monotonic() - started


def _wait_or_kill(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_TIMEOUT_S)
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def free_ports(count: int) -> Iterator[int]:
    """Return ports that nobody listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return iter([each.getsockname()[1] for each in sockets])
