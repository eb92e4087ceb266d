"""One stream, one lease at a time, and the device's owner above both."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from edge_client.agent.session import Ended, Session
from edge_client.folder.outbox import KeptUpdate
from edge_client.jobs.job import Evaluated, Job, Outcome, Trained
from edge_client.wire.refusal import RefusedError, UnreachableError
from protos import federation_pb2 as wire
from tests.edge_client.stand_ins import (
    MESSAGE_ID,
    StandInTrainer,
    StandInTransport,
    make_device,
    make_lease,
)

TRAINED = Trained(example_count=12, message_id=MESSAGE_ID)
COUNTS = Evaluated(token_count=10, log_loss_sum=23.0, top1_hits=2, top3_hits=4)


class Scene:
    """Hold a device on a stream that the test pushes orders down."""

    def __init__(self, folder: Path, trainer: StandInTrainer) -> None:
        self.transport = StandInTransport()
        self.trainer = trainer
        self.device = make_device(folder, trainer)
        self.needed_elsewhere = asyncio.Event()
        self.renewal_due = asyncio.Event()

    def push(self, order: wire.WorkOrder | None) -> None:
        self.transport.orders.put_nowait(order)

    def lease(self, number: int = 1) -> None:
        self.push(wire.WorkOrder(lease=make_lease(number=number)))

    def lease_ended(self, number: int) -> None:
        ended = wire.LeaseEnded(nonce=make_lease(number=number).nonce)
        self.push(wire.WorkOrder(lease_ended=ended))

    def come_back(self, reason: str, seconds: int) -> None:
        retry = wire.RetryAfter(reason=reason, seconds=seconds)
        self.push(wire.WorkOrder(retry_after=retry))

    async def run(self, *, once: bool = False) -> Ended:
        async def leave() -> None:
            await self.needed_elsewhere.wait()

        async def renew() -> None:
            await self.renewal_due.wait()

        session = Session(self.device, self.transport, once=once)
        return await asyncio.wait_for(session.run(leave, renew), 60)


def play(folder: Path, act: Callable[[Scene], Awaitable[None]], trainer: StandInTrainer) -> Scene:
    """Run a scene inside an event loop."""

    async def on_stage() -> Scene:
        scene = Scene(folder, trainer)
        await act(scene)
        return scene

    return asyncio.run(on_stage())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


def test_a_check_in_says_what_the_device_is(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.come_back("finished", 3600)
        assert await scene.run() == Ended(3600.0, "finished")

    scene = play(tmp_path, act, StandInTrainer())

    (request,) = scene.transport.checked_in
    assert list(request.model_families) == ["gru_lm"]
    assert request.software_version
    assert request.device_time_ms > 1_700_000_000_000


def test_a_device_that_waits_for_a_round_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(scene: Scene) -> None:
        scene.come_back("finished", 3600)
        await scene.run()

    with caplog.at_level("INFO", "edge_client.agent.session"):
        play(tmp_path, act, StandInTrainer())

    assert "checking in; work comes when a round has a place" in caplog.text


def test_leases_are_served_one_after_the_other(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.lease(1)
        running = asyncio.create_task(scene.run())
        await until(lambda: "commit" in scene.transport.named)
        scene.lease(2)
        await until(lambda: scene.transport.named.count("commit") == 2)
        scene.come_back("draining", 10)
        assert await running == Ended(10.0, "draining")

    scene = play(tmp_path, act, StandInTrainer(TRAINED))

    assert [job.round_number for job in scene.trainer.jobs] == [1, 2]


def test_once_ends_after_one_lease(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.lease(1)
        assert await scene.run(once=True) == Ended(0.0, "served")

    play(tmp_path, act, StandInTrainer(COUNTS))


def test_an_ended_lease_stops_the_work_and_another_ones_end_does_not(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.lease(1)
        running = asyncio.create_task(scene.run())
        await until(lambda: len(scene.trainer.jobs) == 1)
        scene.lease_ended(7)
        for _ in range(20):
            await asyncio.sleep(0)
        assert scene.trainer.stopped == 0
        scene.lease_ended(1)
        await until(lambda: scene.trainer.stopped == 1)
        scene.come_back("finished", 1)
        await running

    scene = play(tmp_path, act, StandInTrainer())

    assert scene.transport.named == ["check_in", "fetch_model"]


def test_a_new_lease_waits_for_the_answer_of_the_work_before(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.transport.commit_hangs = True
        scene.lease(1)
        running = asyncio.create_task(scene.run())
        await until(lambda: "commit" in scene.transport.named)
        scene.lease(2)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(scene.trainer.jobs) == 1
        scene.transport.commit_answered.set()
        await until(lambda: scene.transport.named.count("commit") == 2)
        scene.come_back("finished", 1)
        await running

    scene = play(tmp_path, act, StandInTrainer(TRAINED))

    assert [job.round_number for job in scene.trainer.jobs] == [1, 2]


def test_who_serves_one_lease_serves_no_second_that_overtakes_the_answer(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.transport.commit_hangs = True
        scene.lease(1)
        running = asyncio.create_task(scene.run(once=True))
        await until(lambda: "commit" in scene.transport.named)
        scene.lease(2)
        scene.transport.commit_answered.set()
        assert await running == Ended(0.0, "served")

    scene = play(tmp_path, act, StandInTrainer(TRAINED))

    assert [job.round_number for job in scene.trainer.jobs] == [1]


def test_what_waits_in_the_outbox_is_asked_about_when_the_run_is_over(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        outbox, personal = scene.device.folder.outbox(), scene.device.folder.personal
        outbox.sealed_update.write_bytes(b"sealed")
        outbox.keep(
            KeptUpdate(
                lease_nonce=make_lease().nonce,
                deadline_ms=1000,
                base_sha256=make_lease().base_sha256,
                message_id=MESSAGE_ID,
                example_count=12,
            )
        )
        personal.waiting(MESSAGE_ID).write_bytes(b"trained")
        # A coordinator that goes away may offer the same lease again.
        scene.come_back("draining", 10)
        await scene.run()
        assert "commit" not in scene.transport.named
        scene.come_back("finished", 10)
        await scene.run()

    scene = play(tmp_path, act, StandInTrainer())

    assert scene.transport.calls[-1] == ("commit", make_lease().nonce, MESSAGE_ID, 12)
    assert scene.device.folder.personal.current.read_bytes() == b"trained"
    assert scene.device.folder.outbox().kept() is None


def test_the_owner_gets_the_device_back_at_once(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.lease(1)
        running = asyncio.create_task(scene.run())
        await until(lambda: len(scene.trainer.jobs) == 1)
        scene.needed_elsewhere.set()
        assert await running == Ended(0.0, "policy")
        assert scene.trainer.stopped == 1

    play(tmp_path, act, StandInTrainer())


def test_a_session_without_work_ends_when_certificates_are_due(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        running = asyncio.create_task(scene.run())
        await until(lambda: "check_in" in scene.transport.named)
        scene.renewal_due.set()
        assert await running == Ended(0.0, "renewal")

    play(tmp_path, act, StandInTrainer())


def test_a_lease_in_hand_is_served_before_certificates_are_renewed(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.transport.commit_hangs = True
        scene.lease(1)
        running = asyncio.create_task(scene.run())
        await until(lambda: "commit" in scene.transport.named)
        scene.renewal_due.set()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not running.done()
        scene.transport.commit_answered.set()
        assert await running == Ended(0.0, "renewal")

    scene = play(tmp_path, act, StandInTrainer(TRAINED))

    assert not scene.device.folder.outbox().sealed_update.exists()


@pytest.mark.parametrize(
    ("once", "expected"), [(False, Ended(3600.0, "finished")), (True, Ended(0.0, "served"))]
)
def test_an_order_to_come_back_that_overtakes_the_answer_takes_no_work_away(
    tmp_path: Path, once: bool, expected: Ended
) -> None:
    async def act(scene: Scene) -> None:
        scene.transport.commit_hangs = True
        scene.lease(1)
        running = asyncio.create_task(scene.run(once=once))
        await until(lambda: "commit" in scene.transport.named)
        scene.come_back("finished", 3600)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not running.done()
        scene.transport.commit_answered.set()
        assert await running == expected

    scene = play(tmp_path, act, StandInTrainer(TRAINED))

    assert not scene.device.folder.outbox().sealed_update.exists()


def test_the_owner_gets_the_device_back_from_the_last_work_too(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.lease(1)
        running = asyncio.create_task(scene.run())
        await until(lambda: len(scene.trainer.jobs) == 1)
        scene.come_back("finished", 3600)
        for _ in range(20):
            await asyncio.sleep(0)
        assert scene.trainer.stopped == 0
        scene.needed_elsewhere.set()
        assert await running == Ended(0.0, "policy")
        assert scene.trainer.stopped == 1

    play(tmp_path, act, StandInTrainer())


def test_a_stream_that_ends_without_a_word_is_a_broken_connection(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.push(None)
        with pytest.raises(UnreachableError, match="closed the stream"):
            await scene.run()

    play(tmp_path, act, StandInTrainer())


def test_a_lease_that_came_too_late_leaves_the_stream_open(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.transport.refusals["commit"] = ["late"]
        scene.lease(1)
        running = asyncio.create_task(scene.run())
        await until(lambda: "commit" in scene.transport.named)
        scene.lease(2)
        await until(lambda: scene.transport.named.count("commit") == 2)
        scene.come_back("finished", 1)
        await running

    play(tmp_path, act, StandInTrainer(TRAINED))


@pytest.mark.parametrize("code", ["certificate_revoked", "identity_in_use", "unseal_failed"])
def test_a_refusal_that_concerns_the_device_ends_the_session(tmp_path: Path, code: str) -> None:
    async def act(scene: Scene) -> None:
        scene.transport.refusals["commit"] = [code]
        scene.lease(1)
        with pytest.raises(RefusedError) as refused:
            await scene.run()
        assert refused.value.code == code

    play(tmp_path, act, StandInTrainer(TRAINED))


class BreakingTrainer(StandInTrainer):
    """Fail as nobody thought of."""

    async def run(self, job: Job) -> Outcome:
        raise RecursionError("/home/me/diary.txt")


@pytest.mark.parametrize("once", [False, True])
def test_a_lease_that_breaks_unexpectedly_ends_the_lease_and_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, once: bool
) -> None:
    ended: list[Ended] = []

    async def act(scene: Scene) -> None:
        scene.lease()
        ended.append(await scene.run(once=once))

    scene = play(tmp_path, act, BreakingTrainer())

    assert (ended[0].reason, ended[0].retry_after_s) == ("failed", 60.0)
    assert scene.transport.calls[-1] == ("refuse_plan", make_lease().nonce, "plan_unusable")
    assert ended[0].not_served is not None
    assert ended[0].not_served.exit_status == 4
    assert "/home/me/diary.txt" in caplog.text  # In the owner's log, and nowhere else.
