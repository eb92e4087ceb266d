import multiprocessing
import signal

import pytest

from server.records.failpoints import UNARMED, Failpoint, Failpoints


def reach_twice(armed: str) -> None:
    failpoints = Failpoints(armed)
    for _ in range(2):
        failpoints.reach(Failpoint.CLOSING)
        failpoints.reach(Failpoint.NOISED)


@pytest.mark.parametrize(
    ("armed", "exit_code"),
    [
        ("closing", -signal.SIGKILL),
        ("closing:2", -signal.SIGKILL),
        ("closing:3", 0),
        ("published", 0),
    ],
)
def test_the_process_dies_where_it_is_told_and_nowhere_else(armed: str, exit_code: int) -> None:
    process = multiprocessing.get_context("fork").Process(target=reach_twice, args=(armed,))

    process.start()
    process.join(60)

    assert process.exitcode == exit_code


def test_an_unarmed_process_passes_every_moment() -> None:
    for moment in Failpoint:
        UNARMED.reach(moment)
        Failpoints(None).reach(moment)


@pytest.mark.parametrize("armed", ["", "nowhere", "closing:0", "closing:x", "closing:-1"])
def test_a_moment_that_does_not_exist_is_refused(armed: str) -> None:
    with pytest.raises(ValueError, match="failpoint"):
        Failpoints(armed)
