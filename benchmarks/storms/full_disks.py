"""Fill the disk of the coordinator, then those of the devices, and make room again."""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.parts.deployment import Deployment, wait_until
from benchmarks.storms.book import Book, read_book

COHORT = 3
_MACHINE = "benchmarks.storms.changed_machine"
_LIMIT_S = 120.0


@dataclass(frozen=True)
class FullDisks:
    """The outcome.

    Attributes:
        goes_on_s: Seconds from the room to the next release, on the side where that took longer.
        books: What became of attempts and updates, of each side.
    """

    goes_on_s: float
    books: tuple[Book, Book]


def run_full_disks(*, full_s: float, tell: Callable[[str], None]) -> FullDisks:
    """Let each side run without room for ``full_s`` seconds from when that is noticed."""
    sides = []
    for side in ("coordinator", "devices"):
        tell(f"disk: no room at the {side} for {full_s:.0f} s")
        sides.append(_one_side(side, full_s))
    return FullDisks(max(goes_on_s for goes_on_s, _ in sides), (sides[0][1], sides[1][1]))


def _is_told(deployment: Deployment) -> bool:
    """Return whether a device has met a full disk, its own or the coordinator's."""
    logs = "".join(deployment.device_log(number).read_text() for number in range(COHORT))
    return "No space left" in logs or "disk is full" in logs or deployment.has_ended


def _one_side(side: str, full_s: float) -> tuple[float, Book]:
    with tempfile.TemporaryDirectory(prefix="sotto-storm-") as folder:
        full = {name: str(Path(folder) / f"{name}.full") for name in ("coordinator", "devices")}
        deployment = Deployment(
            Path(folder), words=2_000, hidden=64, cohort=COHORT, deadline_s=60.0, retry_limit=1000
        )
        with deployment:
            machine = (_MACHINE, full["coordinator"], "0")
            deployment.start_coordinator(*machine)
            deployment.enrol()
            for number in range(COHORT):
                deployment.start_training_device(number, _MACHINE, full["devices"], "0")
            deployment.await_rounds(1, _LIMIT_S)
            mark = Path(full[side])
            mark.touch()
            wait_until(lambda: _is_told(deployment), _LIMIT_S, 0.2)
            time.sleep(full_s)
            mark.unlink()
            with_room = time.monotonic()
            before = len(deployment.released())
            # A coordinator that could not close a round has ended and said so; its unit starts it.
            if deployment.has_ended:
                deployment.start_coordinator(*machine)
            wait_until(lambda: len(deployment.released()) > before, _LIMIT_S, 0.2)
            return time.monotonic() - with_room, read_book(deployment, COHORT)
