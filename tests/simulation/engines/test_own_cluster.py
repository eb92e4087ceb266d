"""Clusters that are joined or started and left, each by a command of its own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import simulation.engines.cluster
from benchmarks.parts.two_nodes import TwoNodes
from simulation.engines.cluster import EngineError, ray_cluster
from simulation.engines.installed import installed
from simulation.figures.metrics import read_metrics

pytestmark = [
    pytest.mark.papers,
    pytest.mark.slow,
    pytest.mark.xdist_group("ray"),
    pytest.mark.timeout(600),
]

_PATIENCE_S = 90


def wait_for_round(folder: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not (folder.exists() and read_metrics(folder)):
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline, "no round was finished"
        time.sleep(0.2)


def test_a_cluster_of_this_machine_listens_to_it_alone_and_leaves_nothing_after_ctrl_c(
    tmp_path: Path,
) -> None:
    run, temporary = tmp_path / "run", Path(os.environ["TMPDIR"])
    command = [sys.executable, "-P", "-m", "simulation.cli", "run", "keyboard-tiny"]
    with subprocess.Popen(
        [*command, "--rounds=100000", "--engine=ray", "--workers=1", f"--out={run}"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # As a terminal does: Ctrl-C goes to the whole group.
    ) as process:
        wait_for_round(run, process)
        started = psutil.Process(process.pid).children(recursive=True)
        ports = [
            connection.laddr.ip
            for one in [psutil.Process(process.pid), *started]
            for connection in one.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        ]
        assert list(temporary.glob("sotto-ray-*"))

        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=_PATIENCE_S)

    assert ports
    assert {address.removeprefix("::ffff:") for address in ports} == {"127.0.0.1"}
    assert process.returncode == 1
    assert "stopped; the same command goes on from here" in said
    _, alive = psutil.wait_procs(started, timeout=30)
    assert not alive
    assert not list(temporary.glob("sotto-ray-*"))
    assert not list(temporary.glob("sotto-nodes-*/*.lock"))


# Before any test that lets this process join the cluster: it can join one at a time.
def test_a_node_with_other_software_is_refused_by_its_name(
    nodes: TwoNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = installed()
    here = {**there, "sotto": "9.9"}
    monkeypatch.setattr(simulation.engines.cluster, "installed", lambda: here)

    with (
        pytest.raises(EngineError) as refused,
        ray_cluster(nodes.address),
    ):
        pass

    line = f"node {there['host']} differs from this machine: sotto {there['sotto']} there, 9.9 here"
    assert line in str(refused.value)
