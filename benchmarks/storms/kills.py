"""Kill coordinator, agents and trainers with SIGKILL in bursts, and wait in the calm after each."""

import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.parts.deployment import Deployment
from benchmarks.storms.book import Book, read_book

COHORT = 3
QUORUM = 2
DEADLINE_S = 30.0
# A calm in which nothing is released is given up, and told, after this long.
HOPELESS_S = 180.0
_LARGEST_BURST = 4
_WORDS, _HIDDEN = 2_000, 64
_DEVICE_NICENESS = 10


@dataclass
class Kills:
    """The kills and their outcome.

    Attributes:
        killed: Kills by what was killed.
        restarts_s: Seconds of each restart of the coordinator, until it listened.
        stalls_s: Seconds from the last restart of each burst to the next release.
        released_twice: Rounds whose recorded model changed after it was released.
        rounds: Rounds that were released.
        book: What became of attempts and updates.
    """

    killed: Counter[str] = field(default_factory=Counter)
    restarts_s: list[float] = field(default_factory=list)
    stalls_s: list[float] = field(default_factory=list)
    released_twice: int = 0
    rounds: int = 0
    book: Book | None = None


def run_kills(*, seed: int, seconds: float, tell: Callable[[str], None]) -> Kills:
    """Run a federation through bursts of kills for so long, from its first round on."""
    found = Kills()
    with tempfile.TemporaryDirectory(prefix="sotto-storm-") as folder:
        deployment = Deployment(
            Path(folder),
            words=_WORDS,
            hidden=_HIDDEN,
            cohort=COHORT,
            quorum=QUORUM,
            deadline_s=DEADLINE_S,
            retry_limit=1000,
        )
        with deployment:
            source = random.Random(seed)  # noqa: S311 (a storm that can be raised again)
            storm = _Storm(deployment, source, found)
            storm.begin()
            ends_at = time.monotonic() + seconds
            while time.monotonic() < ends_at:
                tell(
                    f"kills: {ends_at - time.monotonic():.0f} s left, "
                    f"{found.killed.total()} kills, {storm.releases} rounds"
                )
                storm.burst()
                storm.await_release()
            found.rounds = storm.releases
            found.released_twice = storm.watch.stop()
            found.book = read_book(deployment, COHORT)
    return found


class _Storm:
    """The kills of one run, which ``source`` decides on."""

    def __init__(self, deployment: Deployment, source: random.Random, found: Kills) -> None:
        self._deployment = deployment
        self._random = source
        self._found = found
        self._agents = dict[int, psutil.Process]()
        self.watch = ReleaseWatch(deployment)

    @property
    def releases(self) -> int:
        """Rounds released so far."""
        return len(self.watch.digests)

    def begin(self) -> None:
        """Start everything and wait for the first round."""
        self._deployment.start_coordinator()
        self._deployment.enrol()
        for number in range(COHORT):
            self._start_agent(number)
        self.watch.start()
        self._await_release_after(0.0)

    def burst(self) -> None:
        """Kill a few processes, each at a random moment, and start each again."""
        for _ in range(self._random.randint(1, _LARGEST_BURST)):
            time.sleep(self._random.uniform(0, 3.0))
            kind = self._random.choice(("coordinator", "coordinator", "agent", "trainer"))
            self._kill(kind)

    def await_release(self) -> None:
        """Wait in the calm after a burst until a round is released, and note how long it took."""
        calm_at = time.time()
        self._await_release_after(calm_at)
        recorded_at = self.watch.recorded_at
        # Without a release the stall is all of the patience.
        ended_at = recorded_at if recorded_at > calm_at else time.time()
        self._found.stalls_s.append(ended_at - calm_at)

    def _kill(self, kind: str) -> None:
        number = self._random.randrange(COHORT)
        trainers = [child for agent in self._agents.values() for child in agent.children()]
        if kind == "coordinator":
            self._deployment.kill_coordinator()
            time.sleep(self._random.uniform(0, 1.0))
            started = time.monotonic()
            self._deployment.start_coordinator()
            self._found.restarts_s.append(time.monotonic() - started)
        elif kind == "trainer" and trainers:
            with suppress(psutil.NoSuchProcess):
                self._random.choice(trainers).kill()
        else:
            kind = "agent"
            self._agents[number].kill()
            self._agents[number].wait()
            time.sleep(self._random.uniform(0, 1.0))
            self._start_agent(number)
        self._found.killed[kind] += 1

    def _start_agent(self, number: int) -> None:
        process = self._deployment.start_training_device(number)
        self._agents[number] = psutil.Process(process.pid)
        # A device is another machine: its start must not take the coordinator's processor.
        self._agents[number].nice(_DEVICE_NICENESS)

    def _await_release_after(self, moment: float) -> None:
        until = time.monotonic() + HOPELESS_S
        while self.watch.recorded_at <= moment and time.monotonic() < until:
            time.sleep(0.05)


class ReleaseWatch(threading.Thread):
    """A reader of the store, which holds each release against what it was when first seen.

    Attributes:
        digests: Each released round's model.
        recorded_at: When the newest release was recorded, Unix seconds.
    """

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(daemon=True)
        self.digests: dict[int, bytes] = {}
        self.recorded_at = 0.0
        self._deployment = deployment
        self._changed: set[int] = set()
        self._stopped = threading.Event()

    def run(self) -> None:
        """Look twice a second until stopped."""
        while not self._stopped.wait(0.5):
            self._look()

    def stop(self) -> int:
        """End the watch; return how many rounds changed after their release."""
        self._stopped.set()
        self.join()
        self._look()
        return len(self._changed)

    def _look(self) -> None:
        for row in self._deployment.released():
            if row.round_number not in self.digests:
                self.recorded_at = row.recorded_at
            digest = self.digests.setdefault(row.round_number, row.parameters_sha256)
            if digest != row.parameters_sha256:
                self._changed.add(row.round_number)
