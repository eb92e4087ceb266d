"""A model that grows over the wire: devices that miss a stage, a coordinator that dies in one."""

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

from edge_client.descent.compute import prepare_compute
from edge_client.personalisation.grown_state import read_kept_state
from edge_client.personalisation.state import PersonalState, write_state
from edge_client.training.local_round import LocalTrainer
from models.plan.plan import Plan, released_schema
from models.plan.release_record import PERSONALISATION_FILE
from protos import federation_pb2 as pb
from server.operating.commands import Federation as Commands
from server.releases.files import read_release
from tests.integration.conftest import Make
from tests.integration.device import Device, plan_of
from tests.integration.personal_federation import FEDTP, TRANSFORMER, Simulated
from tests.integration.test_failpoints import StubbornDevice

pytestmark = pytest.mark.xdist_group("growing rounds")

TWO_LAYERS = TRANSFORMER.replace("layer_count = 1", "layer_count = 2")
GROWTH = "[growth]\ntarget_layer_count = 2\nstage_count = 2\nround_count = {rounds}\n"


@pytest.mark.parametrize("failpoint", ["committed:3", "noised:2"])
def test_a_coordinator_killed_where_the_model_grows_ends_where_an_undisturbed_one_does(
    make_federation: Make, failpoint: str
) -> None:
    tables = FEDTP.format(head="shared") + GROWTH.format(rounds=2)
    federation = make_federation(model=TWO_LAYERS, cap=3, tables=tables)
    assert Commands(federation.root).status().growth == "stage 1 of 2: 1 of 2 layers"
    federation.start(failpoint)
    devices = federation.enrol(2)

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(StubbornDevice(device).run) for device in devices]
        federation.wait_killed()
        federation.start()
        for future in running:
            future.result(timeout=120)
    assert Commands(federation.root).status().growth == "stage 2 of 2: 2 of 2 layers"
    federation.stop()

    by_name = {device.name: device for device in devices}

    def made_up(number: int, name: str, _: Tensor) -> tuple[Tensor, int]:
        return torch.from_numpy(by_name[name].made_up(expected.plan, number)), 100

    expected = Simulated(federation.config, list(by_name), made_up)
    releases = federation.releases()
    assert [release.parameters_sha256 for release in releases] == expected.run(3)
    assert [release.metrics["growth_stage"] for release in releases] == [1, 2, 2]
    assert [release.metrics["layer_count"] for release in releases] == [1, 2, 2]
    latest = federation.folder.releases / "latest" / PERSONALISATION_FILE
    assert latest.read_bytes() == expected.state_file
    # What is released can be read at any stage: the plan beside it says what it is.
    for number, layers in ((0, 1), (1, 1), (2, 2), (3, 2)):
        stored = read_release(federation.folder.releases / f"{number:06d}")
        assert len(stored.parameters) == released_schema(stored.plan).element_count
        assert stored.plan.model == federation.config.model_at(layers)


class Client:
    """Train one device's own text with projections of its own, kept in a file."""

    def __init__(self, folder: Path, name: str, first_token: int) -> None:
        folder.mkdir()
        self._name = name
        self._state = folder / "current.state"
        self._examples = (torch.arange(60) + first_token) % 190 + 2
        self._trainers: dict[int | None, LocalTrainer] = {}
        self._trained: tuple[LocalTrainer, PersonalState | None] | None = None

    def train(self, plan: Plan, number: int, received: Tensor) -> tuple[Tensor, int]:
        """Return the update and the example count; ``accept`` makes the new state count."""
        trainer = self._trainers.setdefault(plan.growth_stage, LocalTrainer(plan))
        result = trainer.train(
            received,
            self._examples,
            round_number=number,
            client_name=self._name,
            personal=read_kept_state(self._state, plan, trainer.layout),
        )
        self._trained = trainer, result.personal
        return result.update, result.example_count

    def accept(self) -> None:
        if self._trained is not None and self._trained[1] is not None:
            write_state(self._state, self._trained[0].layout, self._trained[1])

    @property
    def state(self) -> bytes:
        return self._state.read_bytes()


class TrainingDevice(StubbornDevice):
    """Train what arrives, but stay out of some rounds."""

    def __init__(self, device: Device, client: Client, misses: Collection[int]) -> None:
        super().__init__(device)
        self._client = client
        self._misses = misses
        self._counts: dict[bytes, int] = {}
        self._unanswered: pb.Lease | None = None

    def _take_part(self, lease: pb.Lease) -> None:
        if self._unanswered is not None and self._unanswered.nonce != lease.nonce:
            # As an agent does: the coordinator may have died between its disk and its answer.
            self._commit(self._unanswered)
        if lease.round_number in self._misses:
            refusal = pb.RefusePlanRequest(lease_nonce=lease.nonce, code="busy")
            self._device.stub.RefusePlan(refusal, timeout=60)
            return
        if lease.nonce not in self._sealed:
            received = self._device.open_model(lease, self._device.fetch(lease))
            update, self._counts[lease.nonce] = self._client.train(
                plan_of(lease), lease.round_number, torch.tensor(received)
            )
            self._sealed[lease.nonce] = self._device.seal_update(lease, update.numpy())
        sealed, message_id = self._sealed[lease.nonce]
        opened = self._device.open_upload(lease, message_id, len(sealed))
        if opened.offset < len(sealed):
            self._device.upload(lease, sealed, opened.offset)
        self._commit(lease)

    def _commit(self, lease: pb.Lease) -> None:
        self._unanswered = lease
        self._device.commit(lease, self._sealed[lease.nonce][1], self._counts[lease.nonce])
        self._unanswered = None
        self._client.accept()


def test_a_device_that_missed_the_growth_catches_up_though_the_coordinator_dies_in_it(
    make_federation: Make, tmp_path: Path
) -> None:
    prepare_compute("cpu", threads=1)
    tables = '[personalisation]\nmethod = "vanilla"\n' + GROWTH.format(rounds=2)
    federation = make_federation(model=TWO_LAYERS, cap=3, quorum=1, tables=tables)
    federation.start("closing:2")
    devices = federation.enrol(2)
    names = [device.name for device in devices]
    # The second has a state of stage 1 when it comes back in round 3, which is of stage 2.
    misses: dict[str, set[int]] = {names[0]: set(), names[1]: {2}}
    clients = {name: Client(tmp_path / name, name, 40 * place) for place, name in enumerate(names)}

    with ThreadPoolExecutor(2) as pool:
        running = [
            pool.submit(TrainingDevice(device, clients[device.name], misses[device.name]).run)
            for device in devices
        ]
        federation.wait_killed()
        federation.start()
        for future in running:
            future.result(timeout=120)
    federation.stop()

    twins = {
        name: Client(tmp_path / f"twin-{name}", name, 40 * place)
        for place, name in enumerate(names)
    }

    def train(number: int, name: str, received: Tensor) -> tuple[Tensor, int] | None:
        if number in misses[name]:
            return None
        trained = twins[name].train(expected.plan, number, received)
        twins[name].accept()
        return trained

    expected = Simulated(federation.config, names, train)
    releases = federation.releases()
    assert [release.parameters_sha256 for release in releases] == expected.run(3)
    assert [release.contribution_count for release in releases] == [2, 1, 2]
    for name in names:
        assert clients[name].state == twins[name].state
