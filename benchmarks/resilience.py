"""Measure what a dead device and a dead coordinator cost a running federation.

Figures (``--json`` prints them as one object):

    dead_client_noticed_s   From kill -9 of a device that holds a lease until the coordinator no
                            longer counts it as connected.
    round_overrun_s         How long after its own deadline the round with the dead device was
                            released, with the updates of the devices that live.
    deadline_s              That deadline, for comparison.
    restart_s               From starting the coordinator again, after kill -9 in mid-round, until
                            it serves; ``devices_back_s``: until its devices are connected again.
    same_model              1 if the run with the kill ended in the model of an undisturbed run.

Devices and coordinator are processes of their own on loopback with full security, and nobody
trains. The coordinator is killed when one of two updates of a round is in.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.parts.deployment import BenchmarkError, Deployment, wait_until
from benchmarks.parts.figures import benchmark_parser, show_figures

TIMEOUT_S = 120.0
OFTEN_S = 0.002
ROUNDS = 6
# Words and width of a tied GRU: 8 MiB of parameters.
MODEL = {"words": 9_714, "hidden": 192}


@contextmanager
def running(
    devices: int, *, quorum: int, deadline_s: float, cap: int, silent: int = 0
) -> Iterator[Deployment]:
    """Run a federation whose last ``silent`` devices take leases and never answer."""
    with (
        tempfile.TemporaryDirectory(prefix="sotto-resilience-") as folder,
        Deployment(
            Path(folder), cohort=devices, quorum=quorum, deadline_s=deadline_s, cap=cap, **MODEL
        ) as deployment,
    ):
        deployment.start_coordinator()
        deployment.enrol()
        for number in range(devices):
            arguments = ("--never-answer",) if number >= devices - silent else ()
            deployment.start_idle_device(number, *arguments)
        yield deployment


def dead_device(deadline_s: float) -> dict[str, float]:
    """Kill one of three devices in mid-round."""
    with running(3, quorum=2, deadline_s=deadline_s, cap=1, silent=1) as deployment:
        wait_until(lambda: _stands(deployment, connected=3, committed=2), TIMEOUT_S)
        deployment.devices[-1].kill()
        noticed_s = wait_until(
            lambda: _stands(deployment, connected=2, committed=2), TIMEOUT_S, OFTEN_S
        )
        wait_until(lambda: bool(deployment.released()), TIMEOUT_S)
        (release,) = deployment.released()
        if release.contribution_count != 2:
            raise BenchmarkError(f"the round must close with 2 updates, got {release}")
        return {
            "dead_client_noticed_s": noticed_s,
            "round_overrun_s": release.duration_s - deadline_s,
            "deadline_s": deadline_s,
        }


def final_model(*, kill: bool) -> tuple[bytes, dict[str, float]]:
    """Run a few rounds, with or without a kill; return the last digest and the figures."""
    figures: dict[str, float] = {}
    with running(2, quorum=2, deadline_s=60.0, cap=ROUNDS) as deployment:
        if kill:
            deployment.await_rounds(2, TIMEOUT_S)
            wait_until(lambda: _stands(deployment, connected=2, committed=1), TIMEOUT_S, OFTEN_S)
            deployment.kill_coordinator()
            started = time.monotonic()
            deployment.start_coordinator()
            figures["restart_s"] = time.monotonic() - started
            wait_until(lambda: deployment.status().connected_clients == 2, TIMEOUT_S, OFTEN_S)
            figures["devices_back_s"] = time.monotonic() - started
        wait_until(lambda: len(deployment.released()) == ROUNDS, TIMEOUT_S, every_s=0.2)
        return deployment.released()[-1].parameters_sha256, figures


def _stands(deployment: Deployment, *, connected: int, committed: int) -> bool:
    status = deployment.status()
    return (status.connected_clients, status.committed_clients) == (connected, committed)


def measure(deadline_s: float) -> dict[str, float]:
    """Run all federations and return the figures."""
    figures = dead_device(deadline_s)
    undisturbed, _ = final_model(kill=False)
    disturbed, restart = final_model(kill=True)
    return {**figures, **restart, "same_model": float(disturbed == undisturbed)}


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="a deadline of 6 s instead of 20 s")
    arguments = parser.parse_args()
    figures = measure(6.0 if arguments.quick else 20.0)
    show_figures(figures, "Devices and coordinators that die", as_json=arguments.json)


if __name__ == "__main__":
    main()
