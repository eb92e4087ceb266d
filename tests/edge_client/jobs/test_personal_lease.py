"""A personal model changes when its update is known to count, whatever breaks in between."""

import asyncio
from pathlib import Path

import pytest

import edge_client.agent.lease as lease_module
from edge_client.agent.device import Device
from edge_client.agent.lease import serve_lease
from edge_client.jobs.job import Fitted, Job, Outcome, Trained
from edge_client.wire.refusal import RefusedError
from models.plan.plan import decode_plan
from protos import federation_pb2 as wire
from tests.edge_client.stand_ins import (
    MESSAGE_ID,
    SEALED_UPDATE,
    StandInTrainer,
    StandInTransport,
    make_device,
    make_lease,
)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "delays", lambda _: iter([0.0] * 20))


class PersonalTrainer(StandInTrainer):
    """Leave a new personal state beside each update, named after the round."""

    def __init__(self, outcome: Outcome | None = None) -> None:
        super().__init__(outcome or Trained(example_count=12, message_id=MESSAGE_ID))
        self.device: Device | None = None

    async def run(self, job: Job) -> Outcome:
        assert self.device is not None
        state = self.device.folder.personal.waiting(MESSAGE_ID)
        state.write_bytes(b"round %d" % job.round_number)
        return await super().run(job)


def device_with(trainer: PersonalTrainer, folder: Path) -> Device:
    trainer.device = make_device(folder, trainer)
    return trainer.device


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return device_with(PersonalTrainer(), tmp_path)


@pytest.fixture
def new_device(tmp_path: Path) -> Device:
    """Return a device whose every lease is to fit an embedding."""
    return device_with(PersonalTrainer(Fitted(message_id=MESSAGE_ID, is_sealed=True)), tmp_path)


@pytest.fixture
def transport() -> StandInTransport:
    return StandInTransport()


def serve(lease: wire.Lease, device: Device, transport: StandInTransport) -> None:
    asyncio.run(serve_lease(lease, device, transport))


def cut_short(
    device: Device, transport: StandInTransport, number: int = 1, call: str = "commit"
) -> None:
    """Serve a lease until its commit is under way, and no further."""
    transport.commit_hangs = True
    commits = transport.named.count(call)

    async def serve_and_cancel() -> None:
        work = asyncio.create_task(serve_lease(make_lease(number=number), device, transport))
        while transport.named.count(call) == commits:
            await asyncio.sleep(0)
        work.cancel()
        await asyncio.wait({work})

    asyncio.run(serve_and_cancel())
    transport.commit_hangs = False


def kept(device: Device) -> tuple[bytes | None, bool]:
    """Return the personal state that counts, and whether another waits."""
    personal = device.folder.personal
    current = personal.current.read_bytes() if personal.current.exists() else None
    return current, personal.waits_for(MESSAGE_ID)


def test_the_state_of_an_acknowledged_update_counts(
    device: Device, transport: StandInTransport
) -> None:
    serve(make_lease(), device, transport)

    assert kept(device) == (b"round 1", False)


def test_what_travels_is_noted_before_a_byte_does(
    device: Device, transport: StandInTransport
) -> None:
    transport.refusals["fetch_model"] = ["late"]

    with pytest.raises(RefusedError):
        serve(make_lease(), device, transport)

    # 20 words in 6 numbers, three gates of a GRU with two biases, and 20 biases of the output.
    count = 20 * 6 + 2 * 18 * 6 + 2 * 18 + 20
    expected = f"method global: {count} parameters of everyone ({4 * count:,} bytes)"
    assert device.folder.travel() == expected
    assert decode_plan(device.folder.plan()).personalisation.method == "global"


def test_the_state_of_a_refused_update_does_not(
    device: Device, transport: StandInTransport
) -> None:
    serve(make_lease(), device, transport)
    transport.refusals["commit"] = ["late"]

    with pytest.raises(RefusedError):
        serve(make_lease(number=2), device, transport)

    assert kept(device) == (b"round 1", False)


def test_a_restart_into_the_same_lease_sends_the_same_update_and_keeps_its_state(
    device: Device, transport: StandInTransport
) -> None:
    cut_short(device, transport)
    assert kept(device) == (None, True)

    serve(make_lease(), device, transport)

    assert kept(device) == (b"round 1", False)
    assert transport.named.count("fetch_model") == 1


def test_a_restart_into_the_next_round_asks_whether_the_update_counted(
    device: Device, transport: StandInTransport
) -> None:
    cut_short(device, transport)
    transport.refusals["fetch_model"] = ["late"]

    with pytest.raises(RefusedError):
        serve(make_lease(number=2), device, transport)

    # The commit of round 1 was repeated and answered; round 2 came to nothing.
    assert transport.calls[-2] == ("commit", make_lease().nonce, MESSAGE_ID, 12)
    assert kept(device) == (b"round 1", False)


def test_an_update_that_did_not_count_leaves_the_state_before_it(
    device: Device, transport: StandInTransport
) -> None:
    serve(make_lease(), device, transport)
    cut_short(device, transport, number=2)
    transport.refusals = {"commit": ["unknown_lease"], "fetch_model": ["late"]}

    with pytest.raises(RefusedError):
        serve(make_lease(number=3), device, transport)

    assert kept(device) == (b"round 1", False)


def test_a_fit_taken_up_again_sends_the_same_embedding(
    new_device: Device, transport: StandInTransport
) -> None:
    cut_short(new_device, transport, call="send_embedding")

    serve(make_lease(), new_device, transport)

    sent = [what for name, *what in transport.calls if name == "send_embedding"]
    assert sent == [[make_lease().nonce, SEALED_UPDATE]] * 2
    assert transport.named.count("fetch_model") == 1
    assert kept(new_device) == (b"round 1", False)


@pytest.mark.parametrize("refusals", [[], ["unknown_lease"]])
def test_what_was_fitted_counts_whatever_becomes_of_its_embedding(
    new_device: Device, transport: StandInTransport, refusals: list[str]
) -> None:
    cut_short(new_device, transport, call="send_embedding")
    assert kept(new_device) == (b"round 1", False)
    transport.refusals = {"fetch_model": ["late"], "send_embedding": refusals}

    with pytest.raises(RefusedError):
        serve(make_lease(number=2), new_device, transport)

    # Work that went first is served after the embedding was sent once more, under its own lease.
    sent = [what for name, *what in transport.calls if name == "send_embedding"]
    assert sent == [[make_lease().nonce, SEALED_UPDATE]] * 2
    assert new_device.folder.outbox().kept() is None
    assert kept(new_device) == (b"round 1", False)
