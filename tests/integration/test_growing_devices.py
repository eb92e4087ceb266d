"""Real agents whose model grows: personal parts and optimisers go on, as in a simulation."""

import pytest
import torch
from torch import Tensor

from edge_client.child.own_text import training_examples
from edge_client.descent.compute import prepare_compute
from edge_client.descent.optimiser_growth import grow_optimiser_state
from edge_client.descent.optimisers import OptimiserState
from edge_client.personalisation.state import PersonalState, PersonalStateError, read_state
from edge_client.training.local_round import LocalTrainer
from models.networks.grown_layers import first_parameters
from models.settings.model import schema_of
from tests.integration.conftest import Make, MakeDevices
from tests.integration.personal_federation import Simulated
from tests.integration.real_device import await_rounds
from tests.integration.test_growing_rounds import GROWTH, TWO_LAYERS
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("processes")


def test_agents_end_where_a_simulation_does_when_their_model_has_grown(
    make_federation: Make, make_devices: MakeDevices
) -> None:
    tables = '[personalisation]\nmethod = "vanilla"\n' + GROWTH.format(rounds=2)
    federation = make_federation(
        model=TWO_LAYERS,
        cap=2,
        deadline=600.0,
        tables=tables,
        more_training='momentum = 0.9\noptimiser_state = "kept"',
    )
    federation.start()
    devices = make_devices(federation, 2)
    for device in devices:
        device.start()
    await_rounds(federation, 2)

    config = federation.config
    prepare_compute("cpu", threads=1, model=config.model)
    names = [f"device-{number:04d}" for number in (1, 2)]
    words = config.word_list.load()
    examples = {
        name: training_examples(device.data, words)
        for name, device in zip(names, devices, strict=True)
    }
    personal: dict[str, PersonalState] = {}
    optimisers: dict[str, OptimiserState] = {}

    def train(number: int, name: str, received: Tensor) -> tuple[Tensor, int]:
        plan = expected.plan
        state, optimiser = personal.get(name), optimisers.get(name)
        if number == 2 and state is not None and optimiser is not None:
            # By hand: the second layer's projections are those that the run's seed draws.
            place = schema_of(plan.model).slices["blocks.1.attention.to_qkv.weight"]
            grown = torch.cat([state.personal, first_parameters(plan)[place]])
            state, optimiser = PersonalState(grown, {}), grow_optimiser_state(optimiser, plan)
        result = LocalTrainer(plan).train(
            received,
            examples[name],
            round_number=number,
            client_name=name,
            personal=state,
            optimiser_state=optimiser,
        )
        assert result.personal is not None
        assert result.optimiser_state is not None
        personal[name], optimisers[name] = result.personal, result.optimiser_state
        return result.update, result.example_count

    expected = Simulated(config, names, train)
    assert [release.parameters_sha256 for release in federation.releases()] == expected.run(2)

    def are_kept() -> bool:
        layout = LocalTrainer(expected.plan).layout
        try:
            kept = [
                read_state(device.folder / "personal" / "current.state", layout)
                for device in devices
            ]
        except PersonalStateError:
            return False  # It is still the one of the stage before.
        return all(
            state is not None and torch.equal(state.personal, personal[name].personal)
            for name, state in zip(names, kept, strict=True)
        )

    until(are_kept)
