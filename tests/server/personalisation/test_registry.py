import pytest
import torch

from models.plan import PersonalisationSettings
from models.schema import Role, Schema, TensorSpec
from server.personalisation.registry import build_server_half

SHARED = Schema((TensorSpec(name="w", shape=(2,), layer="w"),))


def test_the_global_method_sends_nobody_anything_of_their_own() -> None:
    half = build_server_half(PersonalisationSettings(), SHARED)

    assert half.parameters_for("device-0001") is None
    with pytest.raises(ValueError, match="no generated tensors"):
        half.take("device-0001", torch.zeros(2), 1)


@pytest.mark.parametrize("role", [Role.GENERATED, Role.PERSONAL])
def test_the_global_method_refuses_a_tensor_that_is_not_everyones(role: Role) -> None:
    schema = Schema((*SHARED.tensors, TensorSpec(name="own", shape=(1,), layer="own", role=role)))

    with pytest.raises(ValueError, match=r"\['own'\] are not shared"):
        build_server_half(PersonalisationSettings(), schema)


def test_an_unknown_method_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"one of \['global'\], got 'fedtp2'"):
        build_server_half(PersonalisationSettings(method="fedtp2"), SHARED)
