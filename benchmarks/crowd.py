"""Measure what two thousand devices at once cost a coordinator, and what the hostile among them do.

Figures (``--json`` prints them as one object):

    errors               Devices that were refused, cut off or not heard, of both rounds' honest
                         ones: 0.
    rss_mb               Resident memory of the coordinator at its most; ``base_rss_mb``: before
                         anybody came.
    kib_a_connection     Its growth by a device that has checked in and holds a lease.
    checkin_p99_s        From a device's first packet to its lease, 99th percentile; they come at
                         random within the 20 s of a device's own longest pause after a restart.
    deliver_s            From the first fetch of the model to the last acknowledgement, all devices
                         at once; ``deliver_p99_s``: of one device.
    close_s              From the last acknowledgement to the release.
    core_ms_a_checkin, core_ms_an_update, core_ms_a_close
                         Processor time of the coordinator a device: to check in, to serve its
                         fetch, upload and commit, and to sum it. ``driver_core_ms_an_update``: of
                         the devices' own process beside it.
    same_result          1 if a round in which every tenth device stalls, sends garbage or vanishes
                         ends in the bits of a round in which these stay away.
    hostile_deliver_s, hostile_rss_mb
                         The same round's figures of honest devices.
    idle, idle_kib_a_connection, idle_rss_mb, idle_checkin_p99_s
                         That many devices, who then rest on their streams; as far as the limit of
                         open files of this machine goes.

Coordinator and devices are two processes over mutual TLS; a model and an update have 1 MiB each.
``--devices`` and ``--idle`` say how many. The coordinator's first round closes when all are in, the
others at their deadline. Devices are admitted through the store (``parts/admitted_crowd.py``).
"""

import argparse
import itertools
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil

from benchmarks.parts.admitted_crowd import admit_crowd
from benchmarks.parts.deployment import BenchmarkError, Deployment
from benchmarks.parts.figures import benchmark_parser, show_figures
from benchmarks.parts.light_devices import Task, Told

# Words and width of a tied GRU: 262,080 parameters, 1 MiB less 200 bytes.
_MODEL = {"words": 4_014, "hidden": 59}
_ARRIVE_S = 20.0
_ARRIVALS_A_S = 200.0
_RELEASE_TIMEOUT_S = 900.0
_MB, _KIB = 1e6, 1024
# Descriptors of the driver beside its connections.
_DESCRIPTORS_KEPT = 300


class Watch(threading.Thread):
    """The coordinator's memory at its most, bytes, and its processor time, seconds."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.peak_rss = 0
        self._process = psutil.Process(pid)
        self._stopped = threading.Event()

    def run(self) -> None:
        """Look often until stopped."""
        while not self._stopped.wait(0.05):
            self.peak_rss = max(self.peak_rss, self.rss)

    @property
    def rss(self) -> int:
        """Return the memory now."""
        return int(self._process.memory_info().rss)

    @property
    def core_s(self) -> float:
        """Return the processor time so far."""
        used = self._process.cpu_times()
        return float(used.user + used.system)

    def stop(self) -> None:
        """End the watch."""
        self._stopped.set()
        self.join()


class Scene:
    """One federation with a crowd, whose coordinator's folder is as founded in each ``run``."""

    def __init__(self, folder: Path, count: int, *, deadline_s: float, honest: int) -> None:
        self.deployment = Deployment(
            folder, cohort=count, quorum=1, deadline_s=deadline_s, cap=1, **_MODEL
        )
        self.count, self.honest = count, honest
        self._folder = folder
        self._crowd = folder / "crowd.msgpack"
        crowd = admit_crowd(self.deployment.root, self.deployment.config, count)
        self._crowd.write_bytes(msgspec.msgpack.encode(crowd))
        shutil.copytree(self.deployment.root, folder / "founded")

    @contextmanager
    def run(self) -> Iterator[tuple["Driver", Watch]]:
        """Run a new coordinator and a driver of devices."""
        root = self.deployment.root
        shutil.rmtree(root)
        shutil.copytree(self._folder / "founded", root)
        work = self._folder / "work"
        work.mkdir(exist_ok=True)
        with self.deployment:
            self.deployment.start_coordinator()
            if self.deployment.coordinator is None:
                raise BenchmarkError("the coordinator must run")
            watch, driver = Watch(self.deployment.coordinator.pid), Driver(self._crowd, work)
            watch.start()
            try:
                yield driver, watch
            finally:
                driver.stop()
                watch.stop()

    def digest(self) -> str:
        """Wait for the round's release and return its digest."""
        self.deployment.await_rounds(1, _RELEASE_TIMEOUT_S)
        return str(self.deployment.released()[-1].parameters_sha256.hex())


class Driver:
    """The process of the devices."""

    def __init__(self, crowd: Path, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.parts.light_devices", str(crowd), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def do(self, task: Task) -> Told:
        """Have a task done and return what came of it."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("devices take tasks through pipes")
        self._process.stdin.write(f"{msgspec.json.encode(task).decode()}\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=Told)

    @property
    def core_s(self) -> float:
        """Return the processor time so far."""
        used = psutil.Process(self._process.pid).cpu_times()
        return float(used.user + used.system)

    def stop(self) -> None:
        """End every device."""
        self._process.kill()
        self._process.wait()


def _p99(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100)[-1]


def all_at_once(scene: Scene) -> dict[str, float]:
    """Measure a round of all devices, each of them honest."""
    count = scene.count
    with scene.run() as (driver, watch):
        base, core_s = watch.rss, [watch.core_s]
        arrived = driver.do(Task("arrive", count, within_s=_ARRIVE_S))
        resting = watch.rss
        core_s.append(watch.core_s)
        began, driver_s = time.time(), driver.core_s
        delivered = driver.do(Task("deliver", count))
        driver_s = driver.core_s - driver_s
        core_s.append(watch.core_s)
        scene.digest()
        core_s.append(watch.core_s)
        release = scene.deployment.released()[-1]
        each_ms = [1e3 * (after - before) / count for before, after in itertools.pairwise(core_s)]
        return {
            "devices": count,
            "errors": _errors(arrived, delivered),
            "rss_mb": watch.peak_rss / _MB,
            "base_rss_mb": base / _MB,
            "kib_a_connection": (resting - base) / _KIB / count,
            "checkin_p99_s": _p99(arrived.seconds),
            "deliver_s": delivered.ended_at - began,
            "deliver_p99_s": _p99(delivered.seconds),
            "close_s": release.recorded_at - delivered.ended_at,
            "core_ms_a_checkin": each_ms[0],
            "core_ms_an_update": each_ms[1],
            "core_ms_a_close": each_ms[2],
            "driver_core_ms_an_update": 1e3 * driver_s / count,
        }


def _errors(*told: Told) -> int:
    return sum(each.counts.get("errors", 0) for each in told)


def with_hostile(scene: Scene, *, tenth: str) -> tuple[str, dict[str, float]]:
    """Return a round's digest, and the figures of its honest devices."""
    away = tenth == "away"
    with scene.run() as (driver, watch):
        arrive = Task("arrive", scene.count, _ARRIVE_S / 2, tenth="away" if away else "honest")
        arrived, began = driver.do(arrive), time.time()
        delivered = driver.do(Task("deliver", scene.count, tenth=tenth))
        digest = scene.digest()
        if (counted := scene.deployment.released()[-1].contribution_count) != scene.honest:
            raise BenchmarkError(f"the round must have {scene.honest} updates, got {counted}")
        return digest, {
            "errors": _errors(arrived, delivered),
            "hostile_deliver_s": delivered.ended_at - began,
            "hostile_rss_mb": watch.peak_rss / _MB,
        }


def resting(count: int) -> dict[str, float]:
    """Measure devices that check in and then rest, as many as descriptors allow."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most != resource.RLIM_INFINITY:
        count = min(count, most - _DESCRIPTORS_KEPT)
    with tempfile.TemporaryDirectory(prefix="sotto-crowd-") as name:
        scene = Scene(Path(name), count, deadline_s=3_600.0, honest=count)
        with scene.run() as (driver, watch):
            base = watch.rss
            arrived = driver.do(Task("arrive", count, within_s=count / _ARRIVALS_A_S))
            return {
                "idle": scene.deployment.status().connected_clients,
                "idle_errors": _errors(arrived),
                "idle_kib_a_connection": (watch.rss - base) / _KIB / count,
                "idle_rss_mb": watch.peak_rss / _MB,
                "idle_checkin_p99_s": _p99(arrived.seconds),
            }


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    """Run the crowd, the crowd with hostile devices, and those that rest."""
    count = arguments.devices
    with tempfile.TemporaryDirectory(prefix="sotto-crowd-") as name:
        scene = Scene(
            Path(name),
            count,
            deadline_s=arguments.deadline,
            honest=count - len(range(0, count, 10)),
        )
        figures = all_at_once(scene)
        digest, hostile = with_hostile(scene, tenth="bad")
        undisturbed, _ = with_hostile(scene, tenth="away")
    figures["errors"] += hostile.pop("errors")
    figures |= hostile | {"same_result": int(digest == undisturbed)}
    return figures | (resting(arguments.idle) if arguments.idle else {})


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="without resting devices; some four minutes")
    parser.add_argument("--devices", type=int, default=2_000)
    parser.add_argument("--idle", type=int, help="resting devices; 10,000, none with --quick")
    parser.add_argument("--deadline", type=float, default=90.0, help="seconds of a hostile round")
    arguments = parser.parse_args()
    if arguments.idle is None:
        arguments.idle = 0 if arguments.quick else 10_000
    show_figures(measure(arguments), "A crowd of devices", as_json=arguments.json)


if __name__ == "__main__":
    main()
