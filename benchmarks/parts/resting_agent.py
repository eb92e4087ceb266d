"""Run a coordinator and one device's agent as their users do, and look at the agent at rest."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from examples.keyboard.processes import free_ports, run, running, sotto
from protos import federation_pb2 as pb
from server.operating.commands import Federation
from server.services.admin_client import NotRunningError, admin_stub

SETTLING_S = 2.0
PATIENCE_S = 60.0
_POLL_S = 0.005


def measure_agent(repeats: int) -> dict[str, float]:
    """Start an enrolled device's agent several times and return its figures.

    Returns:
        ``agent_rss_mb``: resident memory of the waiting agent, in MB (10^6 bytes), the largest
        seen. ``start_to_checkin_s``: seconds from starting ``sotto-client run`` to the moment the
        coordinator counts the device as checked in, the median.
    """
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        with _coordinator(folder) as federation:
            device = _enrolled_device(folder, federation)
            starts = [_start_once(folder, federation, device) for _ in range(repeats)]
    seconds = sorted(second for second, _ in starts)
    return {
        "agent_rss_mb": max(megabytes for _, megabytes in starts),
        "start_to_checkin_s": seconds[len(seconds) // 2],
    }


@contextmanager
def _coordinator(folder: Path) -> Iterator[Federation]:
    """Found and serve a federation that asks for more devices than there will be."""
    root = folder / "coordinator"
    run(sotto("server", "init", root, "--preset", "keyboard-tiny"))
    enrolment, devices = free_ports(2)
    with (root / "federation.toml").open("a", encoding="utf-8") as settings:
        settings.write(
            f'\n[listen]\nenrolment = "127.0.0.1:{enrolment}"\ndevices = "127.0.0.1:{devices}"\n'
        )
    federation = Federation(root)
    with running({"coordinator": sotto("server", "run", root)}, folder):
        _wait(lambda: _connected(federation) == 0)
        yield federation


def _enrolled_device(folder: Path, federation: Federation) -> Path:
    """Enrol a device that has a little text and may work at any time."""
    device, text = folder / "device", folder / "text"
    text.mkdir()
    (text / "messages.txt").write_text("the train is late again\ni will be home at eight\n" * 20)
    [invite] = run(sotto("server", "token", federation.folder.root, "--count", "1")).split()
    run(sotto("client", "enrol", device, "--invite", invite, "--accept-no-guarantee"))
    (device / "client.toml").write_text("[policy]\nidle = false\n")
    return device


def _start_once(folder: Path, federation: Federation, device: Path) -> tuple[float, float]:
    """Return the seconds to the check-in, and the megabytes of the agent once it waits."""
    command = sotto("client", "run", device, "--data", folder / "text", "--device", "cpu")
    started = time.perf_counter()
    with running({"agent": command}, folder) as processes:
        _wait(lambda: _connected(federation) == 1)
        seconds = time.perf_counter() - started
        time.sleep(SETTLING_S)
        megabytes = psutil.Process(processes["agent"].pid).memory_info().rss / 1e6
    _wait(lambda: _connected(federation) == 0)
    return seconds, megabytes


def _connected(federation: Federation) -> int | None:
    """Return how many devices are checked in, or None while nobody serves."""
    try:
        with admin_stub(federation.socket) as stub:
            answer: pb.StatusResponse = stub.Status(pb.StatusRequest())
    except NotRunningError:
        return None
    return answer.connected_clients


def _wait(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        if time.monotonic() > deadline:
            raise SystemExit(f"the agent's benchmark waited {PATIENCE_S:.0f} s in vain")
        time.sleep(_POLL_S)
