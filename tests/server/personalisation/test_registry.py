import pytest
import torch

from models.networks.flat_parameters import initial_parameters
from models.networks.role_vectors import part_of
from models.plan.roles import assign_roles
from models.settings.model import TransformerLmSettings, schema_of
from models.settings.personalisation import (
    FedPerSettings,
    FedTpSettings,
    GlobalSettings,
    PersonalisationSettings,
    PFedHnSettings,
)
from models.vector.schema import Role, Schema, TensorSpec
from server.personalisation.method import ServerHalf
from server.personalisation.nothing_generated import NothingGenerated
from server.personalisation.registry import build_server_half

SHARED = Schema((TensorSpec(name="w", shape=(2,), layer="w"),))
OWN = TensorSpec(name="own", shape=(1,), layer="own", role=Role.GENERATED)
MODEL = TransformerLmSettings(
    vocabulary_size=5, model_size=4, head_count=2, feedforward_size=4, context_size=3
)


def build(settings: PersonalisationSettings, schema: Schema) -> ServerHalf:
    return build_server_half(settings, schema, model=MODEL, run_seed=3)


def test_a_method_without_generated_tensors_sends_nobody_anything_of_their_own() -> None:
    for settings in (GlobalSettings(), FedPerSettings()):
        half = build(settings, SHARED)

        assert half.parameters_for("device-0001") is None
        assert half.state() == {}
        with pytest.raises(ValueError, match="no generated tensors"):
            half.take("device-0001", torch.zeros(2), 1)
        with pytest.raises(ValueError, match=r"keeps no state, got \['w'\]"):
            half.load({"w": torch.zeros(1)})


def test_a_tensor_that_is_not_everyones_is_refused() -> None:
    schema = Schema((*SHARED.tensors, OWN))

    with pytest.raises(ValueError, match=r"\['own'\] are not"):
        NothingGenerated(schema)
    with pytest.raises(ValueError, match=r"\['own'\] are not"):
        build(GlobalSettings(), schema)


def travelling_of(settings: PersonalisationSettings) -> Schema:
    return assign_roles(settings, schema_of(MODEL)).with_roles(Role.SHARED, Role.GENERATED)


def test_fedtp_makes_the_projections_and_pfedhn_everything() -> None:
    for settings, names in (
        (FedTpSettings(), [f"blocks.{block}.attention.to_qkv.weight" for block in (0, 1)]),
        (PFedHnSettings(), list(schema_of(MODEL).slices)),
    ):
        travelling = travelling_of(settings)
        generated = travelling.with_roles(Role.GENERATED)
        made = build(settings, travelling).parameters_for("ada")

        assert list(generated.slices) == names
        assert made is not None
        assert made.shape == (generated.element_count,)


def test_what_fedtp_makes_starts_near_what_everyone_would_start_from() -> None:
    travelling = travelling_of(FedTpSettings())
    half = build(FedTpSettings(), travelling)
    whole = initial_parameters(MODEL, 3)
    start = part_of(whole, schema_of(MODEL), travelling.with_roles(Role.GENERATED))

    made = [half.parameters_for(f"client-{index}") for index in range(20)]

    mean = torch.stack([tensor for tensor in made if tensor is not None]).mean(dim=0)
    # Other draws of the same size lie √2 times as far away.
    assert float((mean - start).norm()) < 0.7 * float(start.norm())
