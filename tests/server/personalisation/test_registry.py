import pytest
import torch

from models.personalisation_settings import FedPerSettings, FedTpSettings, GlobalSettings
from models.schema import Role, Schema, TensorSpec
from server.personalisation.nothing_generated import NothingGenerated
from server.personalisation.registry import build_server_half

SHARED = Schema((TensorSpec(name="w", shape=(2,), layer="w"),))
OWN = TensorSpec(name="own", shape=(1,), layer="own", role=Role.GENERATED)


def test_a_method_without_generated_tensors_sends_nobody_anything_of_their_own() -> None:
    for settings in (GlobalSettings(), FedPerSettings()):
        half = build_server_half(settings, SHARED)

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


def test_generated_tensors_need_a_method_that_makes_them() -> None:
    with pytest.raises(ValueError, match='"fedtp" generates tensors'):
        build_server_half(FedTpSettings(), Schema((*SHARED.tensors, OWN)))
