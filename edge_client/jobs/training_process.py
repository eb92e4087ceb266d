"""Run training in a process of its own, so that the resting agent stays small.

The agent sees only sealed files. A child serves one job and dies, or waits ``keep_warm_s`` for the
next: importing torch costs a second and 200 MB, and the device's owner weighs the two.
"""

import asyncio
import contextlib
import logging
import signal
import sys
from typing import Protocol

import msgspec

from edge_client.jobs.job import TRAINING_DIED, Failed, Job, Outcome, decode_outcome, encode

logger = logging.getLogger(__name__)


class Trainer(Protocol):
    """A place other than the agent in which jobs are done."""

    async def run(self, job: Job) -> Outcome:
        """Do one job and return its outcome; cancelling stops the work at once."""
        ...

    async def close(self) -> None:
        """Release whatever is kept between jobs."""
        ...


class ChildTrainer:
    """A trainer in a child process, which stays ``keep_warm_s`` seconds in memory when idle."""

    def __init__(self, keep_warm_s: float = 0.0) -> None:
        if not keep_warm_s >= 0:
            raise ValueError(f"keep_warm_s must be >= 0, got {keep_warm_s}")
        self.keep_warm_s = keep_warm_s
        self._process: asyncio.subprocess.Process | None = None
        self._cooling: asyncio.TimerHandle | None = None

    async def run(self, job: Job) -> Outcome:
        """Do one job in the child, starting one where none is warm.

        A child that the machine kills, for its memory most often, says nothing about the plan: the
        job gets one more.
        """
        outcome, status = await self._run_once(job)
        if status == -signal.SIGKILL:
            logger.warning("the training process was killed; the work begins once more")
            outcome, _ = await self._run_once(job)
        return outcome

    async def _run_once(self, job: Job) -> tuple[Outcome, int | None]:
        """Return the outcome, and the child's exit status if it ended before it answered."""
        process = await self._warm_process()
        answered = False
        try:
            outcome = await _exchange(process, job)
            status = process.returncode
            answered = status is None
        finally:
            # Cancelled, or the child broke: whatever it was doing must not go on.
            if not answered or self.keep_warm_s == 0:
                await self.close()
        if answered and self.keep_warm_s > 0:
            loop = asyncio.get_running_loop()
            self._cooling = loop.call_later(self.keep_warm_s, _kill, process)
        return outcome, status

    async def close(self) -> None:
        """End the child and wait until it is gone."""
        if self._cooling is not None:
            self._cooling.cancel()
            self._cooling = None
        process, self._process = self._process, None
        if process is not None:
            _kill(process)
            await process.wait()

    async def _warm_process(self) -> asyncio.subprocess.Process:
        if self._cooling is not None:
            self._cooling.cancel()
            self._cooling = None
        if self._process is None or self._process.returncode is not None:
            # -P keeps the working folder off the import path: the agent may be started anywhere.
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "edge_client.child"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        return self._process


async def _exchange(process: asyncio.subprocess.Process, job: Job) -> Outcome:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the training process must be started with pipes")
    with contextlib.suppress(ConnectionError):  # a dead child shows as an empty line below
        process.stdin.write(encode(job) + b"\n")
        await process.stdin.drain()
    line = await process.stdout.readline()
    if not line:
        code = await process.wait()
        return Failed(
            code=TRAINING_DIED,
            reason=f"the training process ended with status {code} before it answered",
        )
    try:
        return decode_outcome(line)
    except msgspec.DecodeError as error:
        return Failed(code=TRAINING_DIED, reason=f"the training process answered: {error}")


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
