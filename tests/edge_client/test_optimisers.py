import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
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


@pytest.mark.parametrize(
    ("kind", "peer"),
    [
        ({}, lambda given: torch.optim.SGD(given, lr=0.5)),
        (
            {"momentum": 0.9, "weight_decay": 0.01},
            lambda given: torch.optim.SGD(given, lr=0.5, momentum=0.9, weight_decay=0.01),
        ),
        (
            {"optimiser": "adam", "weight_decay": 0.01},
            lambda given: torch.optim.Adam(given, lr=0.5, weight_decay=0.01),
        ),
    ],
    ids=["sgd", "momentum", "adam"],
)
def test_steps_are_those_of_torchs_own_optimisers(
    kind: dict[str, Any],
    peer: Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer],
) -> None:
    network, optimiser = make_optimiser(learning_rate=0.5, gradient_clipping_norm=None, **kind)
    twin = build_network(MODEL)
    twin.load_state_dict(network.state_dict())
    torchs = peer(twin.parameters())
    generator = torch.Generator().manual_seed(0)

    for _ in range(5):
        for one, two in zip(network.parameters(), twin.parameters(), strict=True):
            one.grad = torch.randn(one.shape, generator=generator)
            two.grad = one.grad.clone()
        optimiser.step()
        torchs.step()

    for one, two in zip(network.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)


def test_a_parameter_without_a_gradient_stays() -> None:
    network, optimiser = make_optimiser(momentum=0.9)
    give_gradients(network, 1.0)
    still, moving = list(network.parameters())[:2]
    before, still.grad = [p.detach().clone() for p in (still, moving)], None

    optimiser.step()

    assert torch.equal(still, before[0])
    assert not torch.equal(moving, before[1])


# In a fresh interpreter, as in every fresh training process: this one has loaded more already.
TRAINS = """
import sys
from edge_client.local_round import run_training
from models.model_settings import GruLmSettings, TransformerLmSettings
from models.parameters import initial_parameters
from tests.edge_client.training_plan import make_plan, make_text

for model in (
    GruLmSettings(vocabulary_size=20, hidden_size=6),
    TransformerLmSettings(vocabulary_size=20, model_size=8, head_count=2),
):
    for kind in ({"momentum": 0.9}, {"optimiser": "adam"}, {"precision": "bfloat16"}):
        plan = make_plan(model=model, gradient_clipping_norm=1.0, **kind)
        received = initial_parameters(model, seed=1)
        run_training(plan, received, make_text(50), round_number=1, client_name="a")
print("torch._dynamo" in sys.modules)
"""


def test_a_fresh_process_trains_without_loading_the_compiler() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRAINS],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )

    assert done.stdout == "False\n"
