"""A lease ends in an answer that the coordinator has, whatever breaks in between."""

import asyncio
import contextlib
from pathlib import Path

import msgspec
import pytest

import edge_client.agent.lease as lease_module
from edge_client.agent.device import Device
from edge_client.agent.lease import serve_lease
from edge_client.jobs.job import Evaluated, Failed, Job, Outcome, Trained
from edge_client.wire.refusal import RefusedError, UnreachableError
from privacy.noise.calibrated_settings import LocalNoise
from protos import federation_pb2 as wire
from tests.edge_client.stand_ins import (
    FLOOR,
    MESSAGE_ID,
    SEALED_MODEL,
    SEALED_UPDATE,
    StandInTrainer,
    StandInTransport,
    make_device,
    make_lease,
    shipped_plan,
    shipped_words,
)

TRAINED = Trained(example_count=12, message_id=MESSAGE_ID)
COUNTS = Evaluated(token_count=10, log_loss_sum=23.0, top1_hits=2, top3_hits=4)
NONCE = make_lease().nonce
LOCAL = LocalNoise(clipping_norm=1.0, noise_multiplier=1.0, delta=1e-5, epsilon_budget=1e9)
EARLIER, OTHER = b"e" * 32, b"o" * 32


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "delays", lambda _: iter([0.0] * 20))


@pytest.fixture
def transport() -> StandInTransport:
    return StandInTransport()


def serve(lease: wire.Lease, device: Device, transport: StandInTransport) -> None:
    asyncio.run(serve_lease(lease, device, transport))


def cut_short(device: Device, transport: StandInTransport) -> None:
    """Serve lease 1 until its commit is under way, and no further."""
    transport.commit_hangs = True

    async def serve_and_cancel() -> None:
        work = asyncio.create_task(serve_lease(make_lease(), device, transport))
        while "commit" not in transport.named:
            await asyncio.sleep(0)
        work.cancel()
        await asyncio.wait({work})

    asyncio.run(serve_and_cancel())


def with_outcome(folder: Path, outcome: Outcome) -> tuple[Device, StandInTrainer]:
    trainer = StandInTrainer(outcome)
    return make_device(folder, trainer), trainer


def test_a_model_is_fetched_trained_sent_committed_and_forgotten(
    tmp_path: Path, transport: StandInTransport
) -> None:
    device, trainer = with_outcome(tmp_path, TRAINED)
    lease = make_lease()

    serve(lease, device, transport)

    assert transport.calls == [
        ("fetch_model",),
        ("upload", NONCE, MESSAGE_ID, SEALED_UPDATE),
        ("commit", NONCE, MESSAGE_ID, 12),
    ]
    job: Job = trainer.jobs[0]
    assert (job.plan, job.round_number, job.lease_nonce) == (lease.plan, 1, NONCE)
    # The sealed model goes with the job, the sealed update with its acknowledgement.
    assert list(device.folder.work.iterdir()) == []
    assert not device.folder.outbox().sealed_update.exists()
    assert device.traffic.today.bytes_moved == len(SEALED_MODEL) + len(SEALED_UPDATE)


def lease_from(*offered: tuple[bytes, int]) -> wire.Lease:
    """Return a lease whose model may be fetched from earlier releases on, in so many bytes."""
    lease = make_lease()
    for release, download_bytes in offered:
        lease.moved.add(base_sha256=release, download_bytes=download_bytes)
    return lease


def test_a_device_fetches_what_changed_since_the_release_that_it_holds(
    tmp_path: Path, transport: StandInTransport
) -> None:
    device, trainer = with_outcome(tmp_path, TRAINED)
    device.folder.held.keep(EARLIER, b"its parameters")

    serve(lease_from((OTHER, 4), (EARLIER, 5)), device, transport)

    assert transport.fetched == [(5, EARLIER)]
    assert trainer.jobs[0].held_sha256 == EARLIER


@pytest.mark.parametrize(
    ("held", "offered"),
    [
        (None, [(EARLIER, 5)]),
        (EARLIER, []),
        (EARLIER, [(OTHER, 5)]),
        (EARLIER, [(EARLIER, len(SEALED_MODEL))]),
    ],
    ids=["nothing held", "nothing offered", "another offered", "no shorter"],
)
def test_a_device_that_no_way_serves_fetches_the_whole_model(
    tmp_path: Path,
    transport: StandInTransport,
    held: bytes | None,
    offered: list[tuple[bytes, int]],
) -> None:
    device, trainer = with_outcome(tmp_path, TRAINED)
    if held is not None:
        device.folder.held.keep(held, b"its parameters")

    serve(lease_from(*offered), device, transport)

    assert transport.fetched == [(len(SEALED_MODEL), b"")]
    assert trainer.jobs[0].held_sha256 is None


class BreakingTransport(StandInTransport):
    """Lose the connection in the middle of every download."""

    async def fetch_model(
        self,
        lease: wire.Lease,
        part: wire.ModelPart,
        total_bytes: int,
        target: Path,
        base_sha256: bytes = b"",
    ) -> None:
        with target.open("ab") as file:
            file.write(SEALED_MODEL[:5])
        raise UnreachableError("unavailable: as told")


def break_off(lease: wire.Lease, device: Device) -> None:
    with pytest.raises(UnreachableError):
        serve(lease, device, BreakingTransport())


def test_what_an_interrupted_download_moved_counts_each_time(tmp_path: Path) -> None:
    device, _ = with_outcome(tmp_path, TRAINED)

    break_off(make_lease(), device)
    break_off(make_lease(), device)

    assert device.traffic.today.bytes_down == 2 * 5
    # The second went on where the first broke off.
    (part,) = device.folder.work.iterdir()
    assert part.stat().st_size == 2 * 5


@pytest.mark.parametrize("refused", [False, True])
def test_a_lease_throws_away_what_was_fetched_for_the_one_before(
    tmp_path: Path, transport: StandInTransport, *, refused: bool
) -> None:
    device, _ = with_outcome(tmp_path, TRAINED)
    break_off(make_lease(), device)

    if refused:
        serve(make_lease(b"no plan", number=2), device, transport)
        assert "refuse_plan" in transport.named
    else:
        break_off(make_lease(number=2), device)

    left = {path.stem for path in device.folder.work.iterdir()}
    assert left == (set() if refused else {make_lease(number=2).nonce.hex()})


@pytest.mark.parametrize("refusal", ["rate_limited", "late"])
def test_every_attempt_to_send_an_update_counts(
    tmp_path: Path, transport: StandInTransport, refusal: str
) -> None:
    device, _ = with_outcome(tmp_path, TRAINED)
    transport.refusals["commit"] = [refusal]

    with contextlib.suppress(RefusedError):
        serve(make_lease(), device, transport)

    uploads = transport.named.count("upload")
    assert uploads == (2 if refusal == "rate_limited" else 1)
    assert device.traffic.today.bytes_up == uploads * len(SEALED_UPDATE)


def test_counts_are_the_answer_to_an_evaluation(
    tmp_path: Path, transport: StandInTransport
) -> None:
    device, _ = with_outcome(tmp_path, COUNTS)

    serve(make_lease(shipped_plan(kind="evaluate")), device, transport)

    assert transport.calls == [("fetch_model",), ("report", NONCE, COUNTS)]


def test_a_refused_plan_is_told_before_a_byte_is_fetched(
    tmp_path: Path, transport: StandInTransport
) -> None:
    trainer = StandInTrainer(TRAINED)
    floor = msgspec.structs.replace(FLOOR, least_cohort=50)
    device = make_device(tmp_path, trainer, floor)

    serve(make_lease(), device, transport)

    assert transport.calls == [("refuse_plan", NONCE, "floor_cohort")]
    assert trainer.jobs == []


def test_a_word_list_that_does_not_fit_is_told(tmp_path: Path, transport: StandInTransport) -> None:
    device, _ = with_outcome(tmp_path, TRAINED)
    named = msgspec.structs.replace(shipped_words(), sha256="00" * 32)

    serve(make_lease(shipped_plan(vocabulary=named)), device, transport)

    assert transport.calls == [("refuse_plan", NONCE, "vocabulary_mismatch")]


@pytest.mark.parametrize("code", ["data_unusable", "disk", "training_died"])
def test_work_that_failed_is_told_with_its_code(
    tmp_path: Path, transport: StandInTransport, code: str
) -> None:
    device, _ = with_outcome(tmp_path, Failed(code=code, reason="why"))

    serve(make_lease(), device, transport)

    assert transport.calls == [("fetch_model",), ("refuse_plan", NONCE, code)]
    assert list(device.folder.work.iterdir()) == []


def test_a_model_that_does_not_open_asks_for_fresh_keys(
    tmp_path: Path, transport: StandInTransport
) -> None:
    device, _ = with_outcome(tmp_path, Failed(code="unseal_failed", reason="why"))

    with pytest.raises(RefusedError) as refused:
        serve(make_lease(), device, transport)

    assert refused.value.code == "unseal_failed"
    assert "refuse_plan" not in transport.named


def test_an_update_that_waits_is_sent_again_byte_for_byte_without_training(
    tmp_path: Path, transport: StandInTransport
) -> None:
    device, trainer = with_outcome(tmp_path, TRAINED)

    cut_short(device, transport)
    again = StandInTransport()
    serve(make_lease(), device, again)

    assert again.calls == [
        ("upload", NONCE, MESSAGE_ID, SEALED_UPDATE),
        ("commit", NONCE, MESSAGE_ID, 12),
    ]
    assert len(trainer.jobs) == 1


def test_an_update_of_another_lease_is_never_sent(
    tmp_path: Path, transport: StandInTransport
) -> None:
    device, trainer = with_outcome(tmp_path, TRAINED)
    cut_short(device, transport)

    again = StandInTransport()
    serve(make_lease(number=2), device, again)

    assert [job.round_number for job in trainer.jobs] == [1, 2]
    assert again.calls[1] == ("upload", make_lease(number=2).nonce, MESSAGE_ID, SEALED_UPDATE)


@pytest.mark.parametrize(
    "code",
    [
        "wrong_offset",
        "upload_superseded",
        "incomplete_upload",
        "disk_full",
        "rate_limited",
        "commit_running",
    ],
)
def test_a_delivery_that_may_succeed_later_is_tried_again(
    tmp_path: Path, transport: StandInTransport, code: str
) -> None:
    device, trainer = with_outcome(tmp_path, TRAINED)
    transport.refusals["upload"] = [code]
    transport.refusals["commit"] = [code]

    serve(make_lease(), device, transport)

    assert transport.named == ["fetch_model", "upload", "upload", "commit", "upload", "commit"]
    assert len(trainer.jobs) == 1


@pytest.mark.parametrize("code", ["late", "unseal_failed", "duplicate"])
def test_a_delivery_that_can_never_succeed_is_given_up_and_forgotten(
    tmp_path: Path, transport: StandInTransport, code: str
) -> None:
    device, _ = with_outcome(tmp_path, TRAINED)
    transport.refusals["commit"] = [code]

    with pytest.raises(RefusedError) as refused:
        serve(make_lease(), device, transport)

    assert refused.value.code == code
    assert device.folder.outbox().kept_for(make_lease()) is None
    # The lease has ended, or fresh keys may save it: there is nothing to hand back.
    assert "refuse_plan" not in transport.named


@pytest.mark.parametrize("code", ["malformed_update", "example_count"])
@pytest.mark.parametrize("ended_meanwhile", [False, True])
def test_an_update_that_does_not_fit_hands_its_lease_back(
    tmp_path: Path, transport: StandInTransport, code: str, *, ended_meanwhile: bool
) -> None:
    device, _ = with_outcome(tmp_path, TRAINED)
    transport.refusals["commit"] = [code]
    transport.refusals["refuse_plan"] = ["late"] if ended_meanwhile else []

    with pytest.raises(RefusedError) as refused:
        serve(make_lease(), device, transport)

    assert refused.value.code == code
    assert transport.calls[-1] == ("refuse_plan", NONCE, code)
    assert device.folder.outbox().kept_for(make_lease()) is None


class DyingTrainer(StandInTrainer):
    """Die of the data, and do what is asked without them."""

    async def run(self, job: Job) -> Outcome:
        outcome = await super().run(job)
        if job.leaves_data_out:
            return outcome
        Path(job.sealed_update).unlink()
        return Failed(code="training_died", reason="killed")


@pytest.mark.parametrize("mode", ["local", "none"])
def test_a_process_that_died_of_the_data_is_no_answer_where_they_are_hidden(
    tmp_path: Path, transport: StandInTransport, mode: str
) -> None:
    floor = msgspec.structs.replace(FLOOR, modes=frozenset({"local", "none"}))
    trainer = DyingTrainer(TRAINED)
    plan = shipped_plan(privacy=LOCAL) if mode == "local" else shipped_plan()

    serve(make_lease(plan), make_device(tmp_path, trainer, floor), transport)

    assert [job.leaves_data_out for job in trainer.jobs] == [False, True][: len(trainer.jobs)]
    assert transport.named[-1] == ("commit" if mode == "local" else "refuse_plan")


@pytest.mark.parametrize("digest", ["/home/me/diary", "../../notes", "", "0" * 63, "G" * 64])
def test_a_digest_that_is_none_is_refused_before_it_can_name_a_file(
    tmp_path: Path, transport: StandInTransport, digest: str
) -> None:
    device, trainer = with_outcome(tmp_path, TRAINED)
    digests = shipped_plan().encode().replace(shipped_words().sha256.encode(), digest.encode())
    assert digests != shipped_plan().encode()

    serve(make_lease(digests), device, transport)

    assert transport.calls == [("refuse_plan", NONCE, "plan_unreadable")]
    assert trainer.jobs == []


def test_a_plan_that_no_training_has_is_refused_where_the_text_is_hidden(
    tmp_path: Path, transport: StandInTransport
) -> None:
    floor = msgspec.structs.replace(FLOOR, modes=frozenset({"local"}))
    trainer = StandInTrainer(TRAINED)
    training = msgspec.structs.replace(shipped_plan().training, learning_rate=1e30)
    plan = shipped_plan(privacy=LOCAL, training=training)

    serve(make_lease(plan), make_device(tmp_path, trainer, floor), transport)

    assert transport.calls == [("refuse_plan", NONCE, "plan_unusable")]
