import msgspec
import pytest
import torch

from models.personal.hypernetwork import Hypernetwork
from models.personal.hypernetwork_state import (
    HypernetworkState,
    Row,
    UnknownClientError,
    generated_for,
    state_of_tensors,
)
from models.settings.hypernetwork import HypernetworkSettings
from models.vector.schema import Schema, TensorSpec

SETTINGS = HypernetworkSettings(embedding_size=2, hidden_size=3, basis_size=1)
SCHEMA = Schema((TensorSpec(name="w", shape=(2, 2), layer="w"),))
# 2*3 + 3, three times 3*3 + 3, a base of 4, a direction of 4, and 3 + 1 numbers that mix it.
PHI_COUNT = 9 + 36 + 12


def state() -> HypernetworkState:
    row = Row(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
    phi = torch.linspace(-1, 1, PHI_COUNT)
    return HypernetworkState(phi, torch.full((PHI_COUNT,), 0.5), {"bob": row, "ada": row})


def test_what_is_written_is_read_clients_in_order_of_their_names() -> None:
    tensors = state().to_tensors(SETTINGS, SCHEMA)

    read = state_of_tensors(tensors, SETTINGS, SCHEMA)

    assert list(tensors) == ["schema_sha256", "phi", "velocity", "client/ada", "client/bob"]
    assert torch.equal(read.phi, state().phi)
    assert torch.equal(read.velocity, state().velocity)
    assert read.rows["ada"].embedding.tolist() == [1.0, 2.0]
    assert read.rows["ada"].velocity.tolist() == [3.0, 4.0]


def test_what_was_written_does_not_move_with_the_state() -> None:
    moving = state()
    tensors = moving.to_tensors(SETTINGS, SCHEMA)

    moving.phi.zero_()
    moving.rows["ada"].embedding.zero_()

    assert torch.equal(tensors["phi"], state().phi)
    assert tensors["client/ada"].tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    ("settings", "schema"),
    [
        (SETTINGS, Schema((TensorSpec(name="w", shape=(4, 1), layer="w"),))),
        (SETTINGS, Schema((TensorSpec(name="v", shape=(2, 2), layer="v"),))),
        (HypernetworkSettings(embedding_size=2, hidden_size=3, basis_size=2), SCHEMA),
        (HypernetworkSettings(embedding_size=2, hidden_size=3, output="literal"), SCHEMA),
        (msgspec.structs.replace(SETTINGS, spectral_norm=True), SCHEMA),
    ],
)
def test_a_state_of_another_model_or_hypernetwork_is_refused(
    settings: HypernetworkSettings, schema: Schema
) -> None:
    with pytest.raises(ValueError, match=r"belongs to another model .* begin a new run"):
        state_of_tensors(state().to_tensors(SETTINGS, SCHEMA), settings, schema)


@pytest.mark.parametrize(
    ("name", "tensor", "rule"),
    [
        ("schema_sha256", None, "belongs to another model"),
        ("phi", None, "must have a tensor 'phi'"),
        ("phi", torch.zeros(PHI_COUNT + 1), "phi must be float32 of shape"),
        ("velocity", torch.zeros(PHI_COUNT, dtype=torch.int64), "velocity must be float32"),
        ("client/ada", torch.full((2, 2), torch.nan), "client/ada must be finite"),
        ("client/ada", torch.zeros(2), r"client/ada must be float32 of shape \(2, 2\)"),
        ("client/", torch.zeros(2, 2), "must have no tensor 'client/'"),
        ("more", torch.zeros(1), "must have no tensor 'more'"),
    ],
)
def test_a_state_that_is_not_whole_is_refused(
    name: str, tensor: torch.Tensor | None, rule: str
) -> None:
    tensors = state().to_tensors(SETTINGS, SCHEMA)
    tensors.pop(name, None)
    if tensor is not None:
        tensors[name] = tensor

    with pytest.raises(ValueError, match=rule):
        state_of_tensors(tensors, SETTINGS, SCHEMA)


def test_a_person_who_took_part_gets_what_the_hypernetwork_makes_of_their_row() -> None:
    hypernetwork = Hypernetwork(SETTINGS, SCHEMA)
    hypernetwork.phi.copy_(state().phi)

    made = generated_for("ada", state(), SETTINGS, SCHEMA)

    assert torch.equal(made, hypernetwork.generate(torch.tensor([1.0, 2.0])))


def test_nobody_gets_a_model_of_which_nothing_was_learnt() -> None:
    with pytest.raises(UnknownClientError, match='no embedding is known of client "eve"'):
        generated_for("eve", state(), SETTINGS, SCHEMA)
