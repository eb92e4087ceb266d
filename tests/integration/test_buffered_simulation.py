"""Buffered rounds of a deployment, devices coming as a simulation has them come, are its rounds."""

from collections.abc import Iterator, Sequence

import msgspec
import torch
from torch import Tensor

from models.networks.flat_parameters import parameters_sha256
from models.plan.plan import Plan
from server.config.federation import make_plan
from simulation.config.data import DataSettings
from simulation.config.simulation import SimulationConfig
from simulation.rounds.federation import Federation as SimulatedFederation
from simulation.workers.pool import Trained
from tests.integration.conftest import Make
from tests.integration.device import Device, next_lease
from tests.integration.real_device import await_rounds

# One update makes a release, so nothing depends on the order in which waiting devices get leases.
BUFFERED = """
selection = "first-come"

[rounds.buffered]
concurrency = 3
max_staleness = 5
"""
SECONDS = {"device-0001": 1.0, "device-0002": 2.3, "device-0003": 3.4}
ROUNDS = 10


class MadeUp:
    """Stand in for the workers: each client's update is the one that its device makes up.

    Attributes:
        came: Who made each release, and the round that they began in.
    """

    def __init__(self, config: SimulationConfig, devices: Sequence[Device]) -> None:
        self.came: list[tuple[str, int]] = []
        self._config = config
        self._devices = {device.name: device for device in devices}

    def use(self, plan: Plan) -> None:
        """Take a plan; none changes what is made up."""

    def train(
        self, parameters: Tensor, cohort: Sequence[tuple[int, str]], **given: object
    ) -> Iterator[Trained]:
        round_number = given["round_number"]
        assert isinstance(round_number, int)
        for slot, name in cohort:
            self.came.append((name, round_number))
            update = torch.from_numpy(self._devices[name].made_up(self._config, round_number))
            yield Trained(slot, name, update, 100, 1.0, float(update.norm()), update.nbytes)


def test_a_deployment_ends_in_the_simulations_bits(make_federation: Make) -> None:
    federation = make_federation(cap=ROUNDS, cohort=1, quorum=1, more_rounds=BUFFERED)
    federation.start()
    devices = {device.name: device for device in federation.enrol(3)}
    config = SimulationConfig(
        data=DataSettings(dataset="manual", partition="iid", client_count=3),
        **msgspec.structs.asdict(federation.config),
    )
    workers = MadeUp(config, list(devices.values()))
    plan = make_plan(config, "0" * 32, cohort_size=1)
    simulated = SimulatedFederation(
        config,
        plan,
        list(devices),
        workers,  # type: ignore[arg-type]
        seconds=SECONDS,
    )
    expected = []
    for _ in range(ROUNDS):
        simulated.run_round()
        expected.append(parameters_sha256(simulated.parameters))

    orders = {name: device.check_in() for name, device in devices.items()}
    leases = {name: next_lease(stream) for name, stream in orders.items()}
    for number, (name, began) in enumerate(workers.came, 1):
        assert leases[name].round_number == began
        assert devices[name].take_part(leases[name]) == number
        if number < ROUNDS:
            leases[name] = next_lease(orders[name])

    await_rounds(federation, ROUNDS)
    # The fast one alone does not make the model: others come, and late.
    assert {name for name, _ in workers.came} == set(devices)
    assert any(began < number for number, (_, began) in enumerate(workers.came, 1))
    assert [release.parameters_sha256 for release in federation.releases()] == expected
