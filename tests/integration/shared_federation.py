"""Two machines that share a federation's folder and its PostgreSQL, here on one."""

import os
import signal
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from itertools import cycle
from multiprocessing.process import BaseProcess
from pathlib import Path

import msgspec
import pytest

from server.cli import main
from server.config.federation import FederationConfig, read_config
from server.config.store import StoreSettings
from server.records.store import check_run, open_store, start_run
from tests.integration.device import Device
from tests.integration.federation import Federation, free_ports, settings
from tests.integration.serving_process import PATIENT_S, START_TIMEOUT_S, Machine, begin_serving
from tests.integration.test_failpoints import StubbornDevice
from tests.waiting import until


class Coordinator:
    """A coordinator of one machine, whether it leads or stands by."""

    def __init__(self, root: Path, name: str, failpoint: str | None, patience_s: float) -> None:
        self._root = root
        self.log_file = root.parent / f"{root.name}-{name}.log"
        # Short: a socket's path has at most 100 bytes.
        runtime = Path(tempfile.mkdtemp(prefix="run-"))
        enrolment, devices, metrics = free_ports(3)
        self.machine = Machine(runtime, enrolment, devices, metrics, patience_s)
        self.process: BaseProcess
        self.process, self._ready = begin_serving(root, self.log_file, failpoint, self.machine)

    @property
    def log(self) -> str:
        return self.log_file.read_text() if self.log_file.exists() else ""

    @property
    def is_open(self) -> bool:
        """Return whether it has opened its ports."""
        return self._ready.closed or self._ready.poll()

    def await_open(self) -> float:
        """Wait until it leads and listens; return the seconds that took."""
        started = time.monotonic()
        assert self._ready.poll(START_TIMEOUT_S), self.log
        try:
            self._ready.recv()
        except EOFError:
            raise AssertionError(self.log) from None
        self._ready.close()
        return time.monotonic() - started

    def await_log(self, text: str) -> None:
        until(lambda: text in self.log)

    def send(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def wait(self) -> int | None:
        self.process.join(60)
        return self.process.exitcode

    def command(self, *arguments: str) -> tuple[int, str]:
        """Run ``sotto-server`` on this machine; return its status and what it said."""
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("XDG_RUNTIME_DIR", str(self.machine.runtime))
            with redirect_stdout(StringIO()) as out, redirect_stderr(out):
                status = main([arguments[0], str(self._root), *arguments[1:]])
        return status, out.getvalue()


class SharedFederation(Federation):
    """A federation whose coordinators are started one by one."""

    patience_s = PATIENT_S

    def __init__(self, root: Path, store: StoreSettings, **changes: object) -> None:
        # Founded alone, with keys that there are already, and then taken over to the shared store.
        alone = Federation(root, settings(**changes))
        text = alone.folder.config.read_text() + f'[store]\nurl = "{store.url}"\n'
        alone.folder.config.write_text(text)
        self.root, self.folder = root, alone.folder
        self.config = read_config(self.folder.config)
        _copy_run(alone.config, self.config)
        self.devices: list[Device] = []
        self.coordinators: list[Coordinator] = []

    def begin(self, failpoint: str | None = None) -> Coordinator:
        """Start one more coordinator, which may have to stand by."""
        self.coordinators.append(
            Coordinator(self.root, f"machine-{len(self.coordinators)}", failpoint, self.patience_s)
        )
        return self.coordinators[-1]

    def pair(self, failpoint: str | None = None) -> tuple[Coordinator, Coordinator]:
        """Start a coordinator that leads, and one that stands by."""
        leader = self.begin(failpoint)
        leader.await_open()
        standby = self.begin()
        standby.await_log("standby: ")
        return leader, standby

    def enrol_at(self, leader: Coordinator, count: int) -> list[Device]:
        """Enrol devices with the one that leads."""
        listen = leader.machine.listen
        self.config = msgspec.structs.replace(self.config, listen=listen)
        return self.enrol(count)

    def stop(self) -> None:
        for device in self.devices:
            device.close()
        for coordinator in self.coordinators:
            if coordinator.process.is_alive():
                coordinator.process.kill()
                coordinator.process.join()


class FollowingDevice(StubbornDevice):
    """A device that knows every machine, and goes from one to the next."""

    def __init__(self, device: Device, coordinators: list[Coordinator]) -> None:
        super().__init__(device)
        self._addresses = cycle([each.machine.listen.devices for each in coordinators])

    @property
    def sealed(self) -> dict[bytes, tuple[bytes, bytes]]:
        """Sealed updates and their message ids, by the nonce of their lease."""
        return self._sealed

    def _work(self) -> bool:
        device = self._device
        device.invite = msgspec.structs.replace(device.invite, device_address=next(self._addresses))
        device.close()
        device.connect()
        return super()._work()


def _copy_run(alone: FederationConfig, shared: FederationConfig) -> None:
    """Begin the run of one store in another."""
    store = open_store(alone.store)
    run = check_run(store, alone.seed, alone.run_digest)
    store.close()
    store = open_store(shared.store)
    start_run(store, run, shared.seed, shared.run_digest, now=time.time())
    store.close()
