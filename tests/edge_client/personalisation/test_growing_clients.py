"""What a device keeps to itself follows a model that has grown meanwhile, by one stage or more."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from edge_client.child.optimiser_store import load_state, save_state
from edge_client.descent.optimiser_growth import grow_optimiser_state
from edge_client.descent.optimisers import Optimiser
from edge_client.personalisation.grown_state import read_kept_state
from edge_client.personalisation.state import (
    PersonalState,
    PersonalStateError,
    StateLayout,
    write_state,
)
from edge_client.training.local_round import LocalTrainer
from models.networks.grown_layers import first_parameters
from models.networks.registry import build_network
from models.networks.role_vectors import part_of
from models.plan.plan import Plan, download_schema, plan_schema
from models.settings.compression import CompressionSettings
from models.settings.personalisation import (
    DittoSettings,
    FedPerSettings,
    GlobalSettings,
    PersonalisationSettings,
    VanillaSettings,
)
from tests.edge_client.training_plan import make_text
from tests.models.growing import growing_plan

KEPT: dict[str, Any] = {"optimiser_state": "kept", "learning_rate": 0.01}


def make_optimiser(plan: Plan) -> tuple[dict[str, Tensor], Optimiser]:
    network = build_network(plan.model)
    return dict(network.named_parameters()), Optimiser(network, plan_schema(plan), plan.training)


def step(parameters: dict[str, Tensor], optimiser: Optimiser, gradient: float) -> None:
    for parameter in parameters.values():
        parameter.grad = torch.full_like(parameter, gradient)
    optimiser.step()


@pytest.mark.parametrize(
    ("kind", "first_step"),
    [
        # A buffer is the first gradient itself; Adam's first step has the size of its rate.
        ({"momentum": 0.5}, 0.01 * 3),
        ({"optimiser": "adam"}, 0.01),
    ],
    ids=["sgd", "adam"],
)
@pytest.mark.parametrize("stage", [2, 3])
def test_old_tensors_step_on_and_new_ones_take_their_first_step(
    tmp_path: Path, kind: dict[str, Any], first_step: float, stage: int
) -> None:
    before, after = (growing_plan(number, **KEPT, **kind) for number in (1, stage))
    small, earlier = make_optimiser(before)
    for gradient in (1.0, -2.0):
        step(small, earlier, gradient)
    save_state(tmp_path, before, earlier.state())
    for parameter in small.values():
        parameter.data.zero_()

    kept = load_state(tmp_path, after)

    assert kept is not None
    large, later = make_optimiser(after)
    later.load_state(kept)
    step(small, earlier, 3.0)
    step(large, later, 3.0)
    for name, parameter in large.items():
        if name in small:
            assert torch.equal(parameter, small[name])
        else:
            torch.testing.assert_close(parameter, torch.full_like(parameter, -first_step))


def test_a_state_of_this_stage_or_of_none_is_left_alone(tmp_path: Path) -> None:
    plan = growing_plan(2, **KEPT, momentum=0.5)
    parameters, optimiser = make_optimiser(plan)
    step(parameters, optimiser, 1.0)
    state = optimiser.state()

    assert grow_optimiser_state(state, plan) is state
    # The state of a later stage is another model's.
    save_state(tmp_path, plan, state)
    assert load_state(tmp_path, growing_plan(1, **KEPT, momentum=0.5)) is None
    other = {"momentum_buffer": torch.ones(7)}
    assert grow_optimiser_state(other, plan) is other


def layout(plan: Plan) -> StateLayout:
    return LocalTrainer(plan).layout


def counting(plan: Plan) -> PersonalState:
    """Return a state in which no two numbers are alike."""
    expected = layout(plan)
    size = expected.personal.element_count
    values = torch.arange(float(size + expected.extras.element_count))
    where = expected.extras.slices
    return PersonalState(
        values[:size],
        {
            spec.name: values[size:][where[spec.name]].view(spec.shape)
            for spec in expected.extras.tensors
        },
    )


def by_name(plan: Plan, state: PersonalState) -> dict[str, Tensor]:
    where = layout(plan).personal.slices
    personal = {name: state.personal[place] for name, place in where.items()}
    return {**personal, **{name: value.reshape(-1) for name, value in state.extras.items()}}


@pytest.mark.parametrize("stage", [2, 3])
@pytest.mark.parametrize("method", [VanillaSettings(), DittoSettings(), FedPerSettings()])
def test_a_personal_state_of_an_older_stage_gets_its_layers(
    tmp_path: Path, method: PersonalisationSettings, stage: int
) -> None:
    before, after = (growing_plan(number, personalisation=method) for number in (1, stage))
    write_state(tmp_path / "kept", layout(before), counting(before))

    state = read_kept_state(tmp_path / "kept", after, layout(after))

    assert state is not None
    grown, kept = by_name(after, state), by_name(before, counting(before))
    whole = first_parameters(after)
    for name, values in grown.items():
        if name in kept:
            assert torch.equal(values, kept[name])
        else:
            # As a device that never had the older stage starts.
            assert torch.equal(values, whole[plan_schema(after).slices[name.removeprefix("own.")]])


@pytest.mark.parametrize(
    ("method", "before", "after"),
    [
        (GlobalSettings(), (1, True), (2, True)),
        (VanillaSettings(), (1, True), (2, True)),
        (VanillaSettings(), (2, True), (2, False)),
        (VanillaSettings(), (2, False), (2, True)),
    ],
)
def test_what_compression_lost_is_dropped_where_the_plan_has_changed(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    method: PersonalisationSettings,
    before: tuple[int, bool],
    after: tuple[int, bool],
) -> None:
    older, newer = (
        msgspec.structs.replace(
            growing_plan(stage, personalisation=method),
            compression=CompressionSettings(uplink="int4", error_feedback=feeds_back),
        )
        for stage, feeds_back in (before, after)
    )
    lost = torch.ones(layout(older).residual.element_count) if before[1] else None
    kept = replace(counting(older), residual=lost)
    write_state(tmp_path / "kept", layout(older), kept)

    state = read_kept_state(tmp_path / "kept", newer, layout(newer))

    assert state is not None
    assert state.residual is None
    assert ("is dropped: the plan has changed" in caplog.text) == before[1]
    if before[0] == after[0]:
        assert torch.equal(state.personal, kept.personal)


def test_a_damaged_state_is_refused_at_any_stage(tmp_path: Path) -> None:
    plan = growing_plan(3, personalisation=VanillaSettings())
    (tmp_path / "kept").write_bytes(b"torn")

    with pytest.raises(PersonalStateError, match="does not fit this model and method"):
        read_kept_state(tmp_path / "kept", plan, layout(plan))
    assert read_kept_state(tmp_path / "none", plan, layout(plan)) is None


def test_who_comes_late_and_who_was_away_train_from_the_same_personal_part(tmp_path: Path) -> None:
    first, third = (growing_plan(stage, personalisation=VanillaSettings()) for stage in (1, 3))
    untouched = part_of(first_parameters(first), plan_schema(first), layout(first).personal)
    write_state(tmp_path / "kept", layout(first), PersonalState(untouched, {}))
    received = part_of(first_parameters(third), plan_schema(third), download_schema(third))

    results = [
        LocalTrainer(third).train(
            received, make_text(40), round_number=5, client_name="device-0001", personal=personal
        )
        for personal in (None, read_kept_state(tmp_path / "kept", third, layout(third)))
    ]

    assert torch.equal(results[0].update, results[1].update)
    assert results[0].personal is not None
    assert results[1].personal is not None
    assert torch.equal(results[0].personal.personal, results[1].personal.personal)
