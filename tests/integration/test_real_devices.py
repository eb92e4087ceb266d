"""Real agents with their training processes, against a real coordinator."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import torch

from edge_client.compute import prepare_compute
from edge_client.device_examples import training_examples
from edge_client.local_round import LocalTrainer
from models.model_settings import schema_of
from models.parameters import initial_parameters, parameters_sha256
from server.closing import Contribution, close_round
from server.config import FederationConfig, make_plan
from tests.integration.conftest import Make
from tests.integration.federation import Federation
from tests.integration.real_device import TEXTS, RealDevice, children_of, is_running

pytestmark = pytest.mark.xdist_group("processes")

LIMIT_S = 60.0
Found = TypeVar("Found")


@pytest.fixture
def make_devices(tmp_path: Path) -> Iterator[Callable[[Federation, int], list[RealDevice]]]:
    """Return a function that enrols real devices with a running federation."""
    made: list[RealDevice] = []

    def make(federation: Federation, count: int) -> list[RealDevice]:
        for invite, text in zip(federation.invite(count), TEXTS, strict=False):
            device = RealDevice(tmp_path / invite.stem, text)
            device.enrol(invite)
            made.append(device)
        return made

    yield make
    for device in made:
        device.stop()


Devices = Callable[[Federation, int], list[RealDevice]]


def test_simulated_and_deployed_rounds_end_in_the_same_bits(
    make_federation: Make, make_devices: Devices
) -> None:
    federation = make_federation(cap=3, cohort=3, quorum=3)
    federation.start()
    devices = make_devices(federation, 3)

    for device in devices:
        device.start()
    await_rounds(federation, 3)

    expected = simulated(federation.config, [device.data for device in devices], rounds=3)
    assert [release.parameters_sha256 for release in federation.releases()] == expected


def test_a_coordinator_killed_in_mid_round_ends_where_an_undisturbed_one_does(
    make_federation: Make, make_devices: Devices
) -> None:
    federation = make_federation(cap=3, cohort=2, quorum=1)
    federation.start()
    devices = make_devices(federation, 2)
    # A quorum of one opens the round for the first device alone; its update
    # lies committed when the coordinator dies.
    devices[0].start()
    await_line(devices[0], "update delivered")

    federation.kill()
    federation.start()
    devices[1].start()
    await_rounds(federation, 3)

    expected = simulated(federation.config, [device.data for device in devices], rounds=3)
    assert [release.parameters_sha256 for release in federation.releases()] == expected
    # The committed update was not asked for again.
    assert devices[0].log.read_text().count("round 1: update delivered") == 1


def test_a_device_killed_while_it_trains_comes_back_into_the_same_round(
    make_federation: Make, make_devices: Devices
) -> None:
    federation = make_federation(cap=1, cohort=2, quorum=1)
    federation.start()
    devices = make_devices(federation, 2)
    devices[0].start()
    await_line(devices[0], "train started")

    devices[0].kill()
    for device in devices:
        device.start()
    await_rounds(federation, 1)

    expected = simulated(federation.config, [device.data for device in devices], rounds=1)
    assert [release.parameters_sha256 for release in federation.releases()] == expected
    assert [release.attempt for release in federation.releases()] == [0]


def test_a_killed_agent_leaves_no_training_process(
    make_federation: Make, make_devices: Devices
) -> None:
    federation = make_federation(cap=1, cohort=2, quorum=1)
    federation.start()
    device = make_devices(federation, 2)[0]
    device.start()
    # The other device never comes, so the round goes on and the training process stays warm.
    await_line(device, "update delivered")
    assert device.process is not None
    pid = device.process.pid
    children = until(lambda: children_of(pid))

    device.kill()

    until(lambda: not any(is_running(child) for child in children))


def simulated(config: FederationConfig, texts: list[Path], *, rounds: int) -> list[bytes]:
    """Return each round's digest, from the functions that the simulation calls."""
    prepare_compute("cpu", threads=1)
    words = config.vocabulary.load()
    plan = make_plan(config, run="0" * 32, vocabulary=words)
    trainer = LocalTrainer(plan)
    parameters = initial_parameters(config.model, config.seed)
    digests = []
    for round_number in range(1, rounds + 1):
        contributions = []
        for slot, text in enumerate(texts):
            result = trainer.train(
                parameters,
                training_examples(text, words),
                round_number=round_number,
                client_name=f"device-{slot + 1:04d}",
            )
            contributions.append(Contribution(slot, result.update, result.example_count))
        parameters = close_round(
            parameters,
            contributions,
            schema=schema_of(config.model),
            aggregation=config.aggregation,
            privacy=config.privacy,
            slot_count=len(texts),
            generator=torch.Generator(),
            example_cap=config.training.example_cap,
        ).parameters
        digests.append(parameters_sha256(parameters))
    return digests


def await_rounds(federation: Federation, count: int) -> None:
    until(lambda: len(federation.releases()) >= count)


def await_line(device: RealDevice, line: str) -> None:
    until(lambda: device.log.exists() and line in device.log.read_text())


def until(condition: Callable[[], Found]) -> Found:
    """Return the first true answer of ``condition``, asked again and again for a minute."""
    deadline = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found
