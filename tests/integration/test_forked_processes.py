"""The process that the tests fork others from outlives those it serves."""

import socket
from multiprocessing import forkserver
from pathlib import Path

from tests.forking import ForkedCommand


def _end_well(_: list[str]) -> int:
    return 0


def test_a_client_killed_before_it_said_what_to_fork_ends_nothing_for_the_others(
    tmp_path: Path,
) -> None:
    ForkedCommand(_end_well, [], tmp_path / "log").wait(60)
    with socket.socket(socket.AF_UNIX) as killed:
        killed.connect(forkserver._forkserver._forkserver_address)  # type: ignore[attr-defined]

    assert ForkedCommand(_end_well, [], tmp_path / "log").wait(60) == 0
