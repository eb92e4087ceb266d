"""Run devices whose clocks are a day apart, and a coordinator whose clock jumps by a day."""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.parts.deployment import Deployment, wait_until
from benchmarks.storms.book import Book, read_book

_MACHINE = "benchmarks.storms.changed_machine"
_NO_MARK = "/nonexistent"
_HOUR_S = 3600.0
_LIMIT_S = 120.0
# The longest that certificates and the check-in bear, less an hour; and an hour more than that.
DEVICES_H = (23, 0, -23)
REFUSED_H = 25
JUMPS_H = (23, 0)


@dataclass(frozen=True)
class WrongClocks:
    """The outcome.

    Attributes:
        apart_rounds: Rounds of devices whose clocks are 23 h ahead, right and 23 h behind.
        refused: Whether the device of another day was told to set its clock, and ended.
        jump_stall_s: The longest time from a restart under another clock to the next release.
        books: What became of attempts and updates, of both runs.
    """

    apart_rounds: int
    refused: bool
    jump_stall_s: float
    books: tuple[Book, Book]


def run_wrong_clocks(*, rounds: int, tell: Callable[[str], None]) -> WrongClocks:
    """Run so many rounds with devices a day apart, then jumps of the coordinator's clock."""
    tell("clocks: devices a day apart")
    apart_rounds, refused, apart = _devices_apart(rounds)
    tell("clocks: the coordinator's jumps by a day")
    jump_stall_s, jumped = _jumps()
    return WrongClocks(apart_rounds, refused, jump_stall_s, (apart, jumped))


def _devices_apart(rounds: int) -> tuple[int, bool, Book]:
    """Return the rounds of devices a day apart, whether another day's is refused, and the book."""
    with (
        tempfile.TemporaryDirectory(prefix="sotto-storm-") as folder,
        _deployment(Path(folder)) as deployment,
    ):
        deployment.start_coordinator()
        deployment.enrol()
        for number, hours in enumerate(DEVICES_H):
            deployment.start_training_device(number, *_wrong_by(hours))
        deployment.await_rounds(rounds, _LIMIT_S)
        deployment.devices[0].terminate()
        deployment.devices[0].wait()
        strange = deployment.start_training_device(0, *_wrong_by(REFUSED_H))
        wait_until(lambda: strange.poll() is not None, _LIMIT_S)
        refused = strange.returncode == 1 and "clock" in deployment.device_log(0).read_text()
        book = read_book(deployment, len(DEVICES_H))
        return deployment.rounds_logged(), refused, book


def _jumps() -> tuple[float, Book]:
    """Return the longest time from a restart under another clock to a release, and the book."""
    stalls_s = []
    with (
        tempfile.TemporaryDirectory(prefix="sotto-storm-") as folder,
        _deployment(Path(folder)) as deployment,
    ):
        deployment.start_coordinator()
        deployment.enrol()
        for number in range(len(DEVICES_H)):
            deployment.start_training_device(number)
        deployment.await_rounds(1, _LIMIT_S)
        for hours in JUMPS_H:
            deployment.kill_coordinator()
            deployment.start_coordinator(*_wrong_by(hours))
            started, before = time.monotonic(), len(deployment.released())
            wait_until(lambda: len(deployment.released()) > before, _LIMIT_S, 0.2)  # noqa: B023
            stalls_s.append(time.monotonic() - started)
        return max(stalls_s), read_book(deployment, len(DEVICES_H))


def _deployment(folder: Path) -> Deployment:
    return Deployment(
        folder,
        words=2_000,
        hidden=64,
        cohort=len(DEVICES_H),
        deadline_s=60.0,
        retry_limit=1000,
    )


def _wrong_by(hours: float) -> tuple[str, str, str]:
    return _MACHINE, _NO_MARK, str(hours * _HOUR_S)
