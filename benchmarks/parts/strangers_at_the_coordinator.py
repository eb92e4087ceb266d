"""Besiege a real coordinator, and see what that costs it and an honest device."""

import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import psutil

from benchmarks.parts.deployment import Deployment
from benchmarks.parts.idle_device import IdleTrainer
from benchmarks.parts.strangers_on_the_wire import WAVES, Siege
from edge_client.agent.device import Device
from edge_client.agent.lease import serve_lease
from edge_client.folder.layout import DeviceFolder
from edge_client.owner.floor import read_floor
from edge_client.owner.traffic import Traffic
from edge_client.wire.refusal import RefusedError, UnreachableError
from edge_client.wire.transport import Transport
from privacy.identities.party import Identity
from protos import federation_pb2 as pb
from protos.version import VERSION
from server.config.federation import read_config
from server.records.folder import ServerFolder

# The coordinator's own warm-up, then what is usual.
_WARM_UP, _USUAL = 3, 8
_DEADLINE_S = 4.0
_HOLD_S = 60.0
# Until the enrolment's connections of a wave have come to their age.
_BETWEEN_WAVES_S = 26.0
_MODEL = {"words": 4_000, "hidden": 96}
_MB = 1e6


class HonestDevice:
    """A device whose rounds are timed, from its lease to the acknowledgement of its update.

    Attributes:
        seconds: Each round's.
        errors: Refusals and lost connections.
    """

    def __init__(self, folder: DeviceFolder) -> None:
        self.seconds: list[float] = []
        self.errors = 0
        self._folder = folder

    async def serve(self) -> None:
        """Take part in every round until cancelled."""
        self._folder.empty_work()
        enrolment = self._folder.enrolment()
        device = Device(
            folder=self._folder,
            client_name=enrolment.client_name,
            data=self._folder.path,
            compute="cpu",
            # Rounds may close with its update alone, as the other device never answers.
            floor=msgspec.structs.replace(read_floor(self._folder.floor), least_cohort=1),
            trainer=IdleTrainer(self._folder, answers=True),
            traffic=Traffic(self._folder.path / "traffic.json"),
        )
        while True:
            try:
                async with _connected(self._folder) as transport:
                    async for order in transport.work_orders(_check_in()):
                        if order.HasField("lease"):
                            started = time.perf_counter()
                            await serve_lease(order.lease, device, transport)
                            self.seconds.append(time.perf_counter() - started)
            except (RefusedError, UnreachableError):
                self.errors += 1
                await asyncio.sleep(0.5)

    async def rounds(self, count: int) -> list[float]:
        """Wait for so many more rounds and return their seconds.

        Raises:
            TimeoutError: If they take far longer than they may.
        """
        first = len(self.seconds)
        async with asyncio.timeout(10 * count * _DEADLINE_S):
            while len(self.seconds) < first + count:
                await asyncio.sleep(0.05)
        return self.seconds[first:]


async def hold_leases(folder: DeviceFolder, siege: Path, known: Siege) -> None:
    """Hold a lease in every round, never answer it, and tell the strangers which it is."""
    async with _connected(folder) as transport:
        async for order in transport.work_orders(_check_in()):
            if order.HasField("lease"):
                told = msgspec.structs.replace(
                    known,
                    lease_nonce=order.lease.nonce,
                    upload_bytes=order.lease.upload_bytes,
                )
                half = siege.with_suffix(".half")
                half.write_bytes(msgspec.json.encode(told))
                half.replace(siege)


def _check_in() -> pb.CheckInRequest:
    return pb.CheckInRequest(
        device_time_ms=round(time.time() * 1000),
        software_version=VERSION,
        model_families=["gru_lm"],
    )


@contextlib.asynccontextmanager
async def _connected(folder: DeviceFolder) -> AsyncIterator[Transport]:
    enrolment, identity = folder.enrolment(), Identity.load(folder.identity)
    async with Transport(
        enrolment.device_address,
        enrolment.ca_certificate,
        identity.tls_key_pem,
        identity.tls_certificate_pem,
    ) as transport:
        yield transport


async def besiege(folder: Path, deployment: Deployment, *, sieges: int) -> dict[str, float]:
    """Measure before, while and after strangers stand at both doors."""
    coordinator = psutil.Process(deployment.coordinator.pid if deployment.coordinator else None)
    honest = HonestDevice(deployment.device_folder(0))
    siege = folder / "siege.json"
    working = [
        asyncio.create_task(honest.serve()),
        asyncio.create_task(
            hold_leases(deployment.device_folder(1), siege, _known(folder, deployment))
        ),
    ]
    await honest.rounds(_WARM_UP)
    usual_s = statistics.median(await honest.rounds(_USUAL))
    rss, descriptors = coordinator.memory_info().rss, _descriptors(coordinator)
    strangers = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.parts.strangers_on_the_wire",
        str(siege),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    turned_away, most, first = 0, rss, len(honest.seconds)
    try:
        for number in range(sieges * len(WAVES)):
            turned_away += await _send_wave(strangers, list(WAVES)[number % len(WAVES)])
            most = max(most, coordinator.memory_info().rss)
            await asyncio.sleep(_HOLD_S if number + 1 == sieges * len(WAVES) else _BETWEEN_WAVES_S)
        await honest.rounds(1)
        meanwhile_s = statistics.median(honest.seconds[first:])
        # The strangers are still there: what is closed, the coordinator has closed.
        return {
            "coordinator_rss_growth_mb": (coordinator.memory_info().rss - rss) / _MB,
            "coordinator_rss_peak_growth_mb": (most - rss) / _MB,
            "descriptors_left": max(0, _descriptors(coordinator) - descriptors),
            "round_s": usual_s,
            "round_ratio": meanwhile_s / usual_s,
            "turned_away": turned_away,
            "coordinator_errors": honest.errors + (not coordinator.is_running()),
        }
    finally:
        for task in working:
            task.cancel()
        strangers.kill()
        await strangers.wait()


def _descriptors(process: psutil.Process) -> int:
    """Return how many a process has open, without those of the store.

    The store opens a few more connections whenever several threads happen to ask it at once.
    """
    opened = 0
    for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            opened += "store.sqlite" not in descriptor.readlink().name
    return opened


async def _send_wave(strangers: asyncio.subprocess.Process, wave: str) -> int:
    """Let a wave arrive and return how many of it were turned away at once."""
    if strangers.stdin is None or strangers.stdout is None:
        raise RuntimeError("strangers take orders through pipes")
    strangers.stdin.write(f"{wave}\n".encode())
    return int(await strangers.stdout.readline())


def _known(folder: Path, deployment: Deployment) -> Siege:
    identity = Identity.load(deployment.device_folder(1).identity)
    certificate = folder / "device.pem"
    certificate.write_bytes(identity.tls_key_pem + identity.tls_certificate_pem)
    listen = read_config(ServerFolder(deployment.root).config).listen
    return Siege(
        enrolment_port=int(listen.enrolment.rpartition(":")[2]),
        devices_port=int(listen.devices.rpartition(":")[2]),
        certificate=str(certificate),
        lease_nonce=b"",
        upload_bytes=0,
    )


def measure_coordinator(*, quick: bool) -> dict[str, float]:
    """Return what strangers cost a coordinator and an honest device of it."""
    os.umask(0o077)
    with tempfile.TemporaryDirectory(prefix="sotto-strangers-") as name:
        folder = Path(name)
        with Deployment(folder, cohort=2, quorum=1, deadline_s=_DEADLINE_S, **_MODEL) as deployment:
            deployment.start_coordinator()
            deployment.enrol()
            return asyncio.run(besiege(folder, deployment, sieges=1 if quick else 3))
