import msgspec
import pytest

from models.plan.frozen import freeze
from models.plan.plan import (
    Plan,
    PlanError,
    decode_plan,
    download_schema,
    released_schema,
    upload_schema,
)
from models.settings.model import GruLmSettings, schema_of
from models.settings.personalisation import FedProxSettings
from models.vector.schema import Role
from privacy.noise.settings import PaperNoise
from tests.edge_client.training_plan import MODEL, make_plan

SCHEMA = schema_of(GruLmSettings(vocabulary_size=20, hidden_size=6))
GRU = {"gru.weight_ih_l0", "gru.weight_hh_l0", "gru.bias_ih_l0", "gru.bias_hh_l0"}


@pytest.mark.parametrize(
    ("names", "frozen"),
    [
        (["gru.bias_hh_l0"], {"gru.bias_hh_l0"}),
        (["gru"], GRU),
        (["gru", "embedding.weight"], GRU | {"embedding.weight"}),
        ([], set()),
    ],
)
def test_a_tensor_or_a_whole_layer_is_frozen_by_its_name(
    names: list[str], frozen: set[str]
) -> None:
    schema = freeze(SCHEMA, names)

    assert set(schema.with_roles(Role.FROZEN).slices) == frozen
    assert set(schema.with_roles(Role.SHARED).slices) == set(SCHEMA.slices) - frozen
    assert list(schema.slices) == list(SCHEMA.slices)


def test_a_name_that_the_model_lacks_is_refused_with_those_it_has() -> None:
    with pytest.raises(ValueError, match=r"of embedding, .*output\.bias, got \['encoder'\]"):
        freeze(SCHEMA, ["gru", "encoder"])


def test_something_must_be_left_to_train() -> None:
    with pytest.raises(ValueError, match="must leave a tensor to train"):
        freeze(SCHEMA, ["embedding", "gru", "output"])


def test_frozen_tensors_are_released_and_received_and_never_sent() -> None:
    noise = PaperNoise(randomisation_magnitude=0.1, score="clean")
    plan = make_plan(frozen=("embedding",), privacy=noise)

    sent = upload_schema(plan)

    assert list(released_schema(plan).slices) == list(SCHEMA.slices)
    assert list(download_schema(plan).slices) == list(SCHEMA.slices)
    # 4 tensors of the GRU and the output's bias, and the norm of each of them.
    assert list(sent.slices)[:-1] == list(SCHEMA.slices)[1:]
    assert sent.tensors[-1].shape == (5,)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"personalisation": FedProxSettings()}, 'method = "global" alone, got "fedprox"'),
        ({"model": msgspec.structs.replace(MODEL, tied=False)}, None),
    ],
)
def test_a_device_refuses_a_plan_that_cannot_freeze(
    changes: dict[str, object], told: str | None
) -> None:
    encoded = _encoded(make_plan(frozen=("embedding",)), changes)

    if told is None:
        assert decode_plan(encoded).training.frozen == ("embedding",)
        return
    with pytest.raises(PlanError, match=told):
        decode_plan(encoded)


def _encoded(plan: Plan, changes: dict[str, object]) -> bytes:
    tables = msgspec.to_builtins(plan) | msgspec.to_builtins(changes)
    return msgspec.json.encode(tables)
