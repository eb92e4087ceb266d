"""What the server half has learnt goes on with a model that gets more layers."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from models.networks.grown_layers import first_parameters
from models.plan.plan import Plan, plan_schema, released_schema
from models.plan.stages import next_stage
from models.settings.model import schema_of
from models.vector.schema import Role
from models.vector.tensor_file import decode_tensors
from privacy.identities.party import Identity
from server.config.plans import make_plan
from server.downlink.personal_shelf import PersonalShelf
from server.downlink.release_writer import Model
from server.personalisation.round_terms import RoundTerms
from server.records.threads import Threads
from server.releases.erasing import erase_client
from server.releases.files import NewRelease, ReleaseFolder
from server.releases.method_state import MethodState, method_state_of
from server.releases.publishing import NO_PREVIOUS
from tests.server.sealing import RUN, configure, make_parties

CONFIG = configure(
    model="""
family = "transformer_lm"
vocabulary_size = 10
model_size = 4
head_count = 1
layer_count = 2
feedforward_size = 4
context_size = 4
""",
    aggregation="""
rule = "mean"
weighting = "equal"
[growth]
target_layer_count = 2
stage_count = 2
round_count = 2
[personalisation]
method = "fedtp"
hypernetwork = { embedding_size = 3, hidden_size = 5, learning_rate = 0.5 }
""",
)
CLIENT = "device-0001"


def plans() -> tuple[Plan, Plan]:
    first = make_plan(CONFIG, RUN, cohort_size=2)
    second = next_stage(first, 2)
    assert second is not None
    return first, second


def teach(state: MethodState) -> None:
    """Let one client take part in a round."""
    state.half.begin(RoundTerms(slot_count=1, weighting="equal", is_noised=False))
    state.half.take(CLIENT, torch.full((state.generated.element_count,), 0.1), 1)
    state.half.close()


def by_name(state: MethodState, client: str) -> dict[str, Tensor]:
    made, where = state.parameters_for(client), state.generated.slices
    return {name: made[place] for name, place in where.items()}


def test_what_is_made_for_a_client_stays_and_a_new_layer_starts_as_everyones_does() -> None:
    _, second = plans()
    state = method_state_of(CONFIG)
    teach(state)
    before = {client: by_name(state, client) for client in (CLIENT, "device-0002")}

    state.grow(second)

    first_name, new_name = (f"blocks.{block}.attention.to_qkv.weight" for block in (0, 1))
    assert list(state.generated.slices) == [first_name, new_name]
    for client, made in before.items():
        assert torch.equal(by_name(state, client)[first_name], made[first_name])
    # Around what the run's seed draws for the second layer: its base is that, the rest is as large.
    drawn = first_parameters(second)[schema_of(second.model).slices[new_name]]
    made_new = by_name(state, CLIENT)[new_name]
    assert float((made_new - drawn).norm()) < 3 * float(drawn.norm())
    assert not torch.equal(made_new, by_name(state, "device-0002")[new_name])


def test_a_grown_half_learns_on_and_is_taken_up_again_at_its_stage() -> None:
    _, second = plans()
    state = method_state_of(CONFIG)
    teach(state)
    state.grow(second)
    grown = by_name(state, CLIENT)
    teach(state)

    assert all(not torch.equal(new, grown[name]) for name, new in by_name(state, CLIENT).items())
    again = method_state_of(CONFIG)
    again.begin_at(method_state_of(CONFIG, 2))
    again.restore(state.encoded())
    assert again.generated == plan_schema(second).with_roles(Role.GENERATED)
    assert again.encoded() == state.encoded()
    assert torch.equal(again.parameters_for(CLIENT), state.parameters_for(CLIENT))


def release(
    releases: ReleaseFolder, signer: Identity, number: int, plan: Plan, state: MethodState
) -> None:
    """Publish a round's model, in which nothing but what the method has learnt matters."""
    parameters = np.zeros(released_schema(plan).element_count, dtype=np.float32)
    new = NewRelease(
        round_number=number,
        attempt=0,
        plan=plan,
        vocabulary=CONFIG.load_vocabulary(),
        parameters=parameters,
        previous_sha256=NO_PREVIOUS,
        metrics={},
        guarantee="none",
        personalisation=state.encoded(),
    )
    releases.build(new, signer)
    releases.publish(number)


def test_a_client_is_erased_from_releases_of_every_stage(tmp_path: Path) -> None:
    signer = make_parties(tmp_path, (CLIENT,)).coordinator
    releases = ReleaseFolder(tmp_path / "releases")
    state = method_state_of(CONFIG)
    for number, plan in enumerate(plans(), start=1):
        if number == 2:
            state.grow(plan)
        teach(state)
        release(releases, signer, number, plan, state)

    erased = erase_client(releases, CLIENT, lambda stage: method_state_of(CONFIG, stage), signer)

    assert erased == 2
    for number in (1, 2):
        left = releases.read(number).personalisation
        assert left is not None
        assert f"client/{CLIENT}" not in decode_tensors(left)[0]


def test_an_embedding_that_comes_while_the_grown_model_is_out_joins_the_release_as_it_is(
    tmp_path: Path,
) -> None:
    signer = make_parties(tmp_path, (CLIENT,)).coordinator
    releases = ReleaseFolder(tmp_path / "releases")
    first, second = plans()
    state = method_state_of(CONFIG)
    teach(state)
    release(releases, signer, 1, first, state)
    # Round 2 is open: its model has a second layer, the newest release has not.
    state.grow(second)
    digest = bytes(32)
    model = Model(1, torch.zeros(released_schema(second).element_count), digest, digest, 2)

    with ThreadPoolExecutor(1) as executor:
        shelf = PersonalShelf(
            CONFIG,
            RUN,
            method=state,
            releases=releases,
            parts=tmp_path / "parts",
            identity=signer,
            threads=Threads(executor),
        )
        asyncio.run(shelf.adopt(model, "device-0009", torch.ones(3)))

    assert state.knows("device-0009")
    stored = method_state_of(CONFIG, 1)
    stored.restore(releases.read(1).personalisation)
    assert stored.knows("device-0009")
    (name,) = stored.generated.slices
    assert torch.equal(by_name(stored, "device-0009")[name], by_name(state, "device-0009")[name])
