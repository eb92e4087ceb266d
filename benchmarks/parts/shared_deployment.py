"""A federation with a coordinator that leads and one that stands by, over one PostgreSQL.

Both run here and listen at one address, as behind an address that moves with the leader.
"""

import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.parts.deployment import BenchmarkError, Deployment, wait_until

_CHECKOUT = Path(__file__).resolve().parents[2]
_OPEN_S = 60.0


class SharedCoordinator:
    """A coordinator's process, on what counts as a machine of its own."""

    def __init__(self, root: Path, folder: Path, number: int) -> None:
        """Start it; a number names its log and its folder for sockets."""
        self._log = folder / f"coordinator-{number}.log"
        self._sockets = tempfile.TemporaryDirectory(prefix="sotto-run-")
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "server.cli", "run", str(root)],
                cwd=_CHECKOUT,
                env={**os.environ, "XDG_RUNTIME_DIR": self._sockets.name},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def await_open(self) -> None:
        """Wait until it listens; BenchmarkError if it does not."""
        stdout, line = self.process.stdout, ""
        if stdout is not None and select.select([stdout], [], [], _OPEN_S)[0]:
            line = stdout.readline()
        if "devices on port" not in line:
            raise BenchmarkError(self._log.read_text())

    def await_standby(self) -> None:
        """Wait until it stands by."""
        wait_until(lambda: "standby: " in self._log.read_text(), _OPEN_S)

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._sockets.cleanup()


class SharedDeployment(Deployment):
    """A federation on PostgreSQL, whose leader is killed and followed."""

    def __init__(self, folder: Path, store_url: str, *, cohort: int, cap: int = 1_000_000) -> None:
        self._store_url = store_url
        self._count = 0
        self._folder_of_logs = folder
        self.leader: SharedCoordinator | None = None
        self.standby: SharedCoordinator | None = None
        super().__init__(folder, words=2_000, hidden=64, cohort=cohort, cap=cap, retry_limit=1000)

    def __enter__(self) -> "SharedDeployment":
        return self

    def changed(self, settings: str) -> str:
        """Return the settings with the store that coordinators share."""
        return f'{settings}\n[store]\nurl = "{self._store_url}"\nkeep_releases = 5\n'

    def __exit__(self, *_: object) -> None:
        self.stop_devices()
        for coordinator in (self.standby, self.leader):
            if coordinator is not None:
                coordinator.kill()

    def begin(self) -> SharedCoordinator:
        """Start one more coordinator."""
        self._count += 1
        return SharedCoordinator(self.root, self._folder_of_logs, self._count)

    def kill_leader(self) -> float:
        """Kill the leader; return the seconds until the other one listens. One more stands by."""
        if self.leader is None or self.standby is None:
            raise BenchmarkError("a leader and a standby must run")
        killed_at = time.monotonic()
        self.leader.kill()
        self.standby.await_open()
        took_s = time.monotonic() - killed_at
        self.leader, self.standby = self.standby, self.begin()
        self.standby.await_standby()
        return took_s
