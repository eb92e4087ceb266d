"""The training process answers, stays warm for as long as told, and never outlives its work."""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TypeVar

import pytest

from edge_client.jobs.job import Failed, Job, Outcome
from edge_client.jobs.training_process import ChildTrainer

Result = TypeVar("Result")

# Each stands for the training process; the real one costs a second of importing torch.
ANSWERS_ITS_PID = """
while read -r job; do echo '{"type":"Failed","code":"pid","reason":"'$$'"}'; done
"""
DIES = "read -r job; exit 3"
BABBLES = "read -r job; echo 'Segmentation fault'; exec sleep 600"
IS_KILLED = "read -r job; kill -KILL $$"
IS_KILLED_ONCE = f"""
mark="$(dirname "$0")/killed"; [ -e "$mark" ] || {{ touch "$mark"; {IS_KILLED}; }}
{ANSWERS_ITS_PID}
"""
WORKS_FOR_EVER = 'echo $$ > "$(dirname "$0")/pid"; read -r job; exec sleep 600'

JOB = Job(
    device_folder="/nowhere",
    plan=b"{}",
    client_name="device-0001",
    round_number=1,
    slot=0,
    lease_nonce=bytes(16),
    base_sha256=bytes(32),
    sealed_model="/nowhere/model",
    sealed_update="/nowhere/update",
    deadline_ms=1,
    data="/nowhere/text",
    device="cpu",
)


@pytest.fixture
def acting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that puts a script in the place of the training process."""

    def put(script: str) -> None:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(path))

    return put


def run(work: Coroutine[None, None, Result]) -> Result:
    return asyncio.run(asyncio.wait_for(work, 100))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def reason_of(outcome: Outcome) -> int:
    assert isinstance(outcome, Failed)
    return int(outcome.reason)


async def two_jobs(keep_warm_s: float) -> tuple[int, int, bool]:
    """Return the processes that did two jobs, and whether the first still lived in between."""
    trainer = ChildTrainer(keep_warm_s)
    first = reason_of(await trainer.run(JOB))
    alive = is_alive(first)
    second = reason_of(await trainer.run(JOB))
    await trainer.close()
    assert not is_alive(second)
    return first, second, alive


def test_each_job_has_a_process_of_its_own(acting: Callable[[str], None]) -> None:
    acting(ANSWERS_ITS_PID)

    first, second, alive_between = run(two_jobs(0.0))

    assert first != second
    assert not alive_between


def test_a_warm_process_does_the_next_job(acting: Callable[[str], None]) -> None:
    acting(ANSWERS_ITS_PID)

    first, second, alive_between = run(two_jobs(60.0))

    assert first == second
    assert alive_between


def test_a_warm_process_ends_when_its_time_is_over(acting: Callable[[str], None]) -> None:
    acting(ANSWERS_ITS_PID)

    async def wait_for_the_end() -> float:
        trainer = ChildTrainer(0.5)
        started = time.monotonic()
        pid = reason_of(await trainer.run(JOB))
        while is_alive(pid):
            await asyncio.sleep(0.01)
        ended = time.monotonic() - started
        await trainer.close()
        return ended

    assert run(wait_for_the_end()) >= 0.5


def test_a_process_that_dies_is_an_outcome_and_the_next_job_gets_another(
    acting: Callable[[str], None],
) -> None:
    async def die_and_go_on() -> tuple[Outcome, Outcome]:
        trainer = ChildTrainer(60.0)
        acting(DIES)
        died = await trainer.run(JOB)
        acting(ANSWERS_ITS_PID)
        answered = await trainer.run(JOB)
        await trainer.close()
        return died, answered

    died, answered = run(die_and_go_on())

    assert died == Failed(
        code="training_died", reason="the training process ended with status 3 before it answered"
    )
    assert reason_of(answered) > 0


@pytest.mark.parametrize(
    ("script", "code"), [(IS_KILLED_ONCE, "pid"), (IS_KILLED, "training_died")]
)
def test_work_whose_process_was_killed_begins_once_more(
    acting: Callable[[str], None], script: str, code: str
) -> None:
    acting(script)

    async def be_killed() -> Outcome:
        trainer = ChildTrainer(0.0)
        return await trainer.run(JOB)

    outcome = run(be_killed())

    assert isinstance(outcome, Failed)
    assert outcome.code == code


def test_an_answer_that_is_none_is_an_outcome(acting: Callable[[str], None]) -> None:
    acting(BABBLES)

    async def listen() -> Outcome:
        trainer = ChildTrainer(0.0)
        return await trainer.run(JOB)

    outcome = run(listen())

    assert isinstance(outcome, Failed)
    assert outcome.code == "training_died"


def test_cancelled_work_stops_at_once(acting: Callable[[str], None], tmp_path: Path) -> None:
    acting(WORKS_FOR_EVER)

    async def cancel() -> int:
        trainer = ChildTrainer(60.0)
        work = asyncio.create_task(trainer.run(JOB))
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            await asyncio.sleep(0.01)
        work.cancel()
        await asyncio.wait({work})
        assert work.cancelled()
        return int((tmp_path / "pid").read_text())

    assert not is_alive(run(cancel()))


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_a_senseless_time_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="keep_warm_s must be >= 0"):
        ChildTrainer(seconds)


@pytest.mark.slow
def test_the_real_process_says_what_it_cannot_do() -> None:
    async def ask() -> Outcome:
        trainer = ChildTrainer(0.0)
        return await trainer.run(JOB)

    outcome = run(ask())

    # Not "training_died": the process took the job, looked at it and answered.
    assert isinstance(outcome, Failed)
    assert outcome.code == "plan_unreadable"
