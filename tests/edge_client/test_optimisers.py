from typing import Any

import pytest
import torch

from edge_client.optimisers import Optimiser
from models.model_settings import schema_of
from models.registry import build_network
from tests.edge_client.training_plan import MODEL, make_plan

SCHEMA = schema_of(MODEL)


def make_optimiser(**training: Any) -> tuple[torch.nn.Module, Optimiser]:
    network = build_network(MODEL)
    return network, Optimiser(network, SCHEMA, make_plan(**training).training)


def give_gradients(network: torch.nn.Module, value: float) -> None:
    for parameter in network.parameters():
        parameter.grad = torch.full_like(parameter, value)


def test_momentum_is_one_flat_vector() -> None:
    network, optimiser = make_optimiser(momentum=0.5)

    for _ in range(2):
        give_gradients(network, 2.0)
        optimiser.step()

    # v = 0.5 * 2 + 2 after two steps with gradient 2.
    assert torch.equal(
        optimiser.state()["momentum_buffer"], torch.full((SCHEMA.element_count,), 3.0)
    )


def test_plain_sgd_has_no_state() -> None:
    network, optimiser = make_optimiser()
    give_gradients(network, 1.0)
    optimiser.step()

    assert optimiser.state() == {}


@pytest.mark.parametrize("kind", [{"momentum": 0.9}, {"optimiser": "adam"}])
def test_a_loaded_state_continues_as_if_never_interrupted(kind: dict[str, Any]) -> None:
    network, whole = make_optimiser(**kind)
    other, resumed = make_optimiser(**kind)
    for value in (1.0, -3.0):
        give_gradients(network, value)
        whole.step()
    other.load_state_dict(network.state_dict())
    resumed.load_state(whole.state())

    for model, optimiser in ((network, whole), (other, resumed)):
        give_gradients(model, 0.25)
        optimiser.step()

    for one, two in zip(network.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def test_a_loaded_state_is_copied() -> None:
    state = {"momentum_buffer": torch.ones(SCHEMA.element_count)}
    network, optimiser = make_optimiser(momentum=0.5)
    optimiser.load_state(state)
    give_gradients(network, 1.0)

    optimiser.step()

    assert bool((state["momentum_buffer"] == 1).all())


def test_gradients_are_clipped_over_all_parameters_and_then_forgotten() -> None:
    network, optimiser = make_optimiser(gradient_clipping_norm=1.0, learning_rate=1.0)
    give_gradients(network, 7.0)

    optimiser.step()

    moved = torch.cat([parameter.detach().flatten() for parameter in network.parameters()])
    assert float(moved.norm()) == pytest.approx(1.0, rel=1e-4)
    assert all(parameter.grad is None for parameter in network.parameters())


def test_a_state_of_another_model_is_refused() -> None:
    _, optimiser = make_optimiser(momentum=0.5)

    with pytest.raises(ValueError, match="must be float32 of shape"):
        optimiser.load_state({"momentum_buffer": torch.ones(3)})
