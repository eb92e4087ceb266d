import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from edge_client.descent.optimisers import Optimiser
from models.layers.he_scaling import HeLinear
from models.networks.registry import build_network
from models.settings.model import schema_of
from models.vector.schema import Schema, TensorSpec
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


@pytest.mark.slow
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
from edge_client.training.local_round import LocalTrainer
from models.settings.model import GruLmSettings, TransformerLmSettings
from models.networks.flat_parameters import initial_parameters
from tests.edge_client.training_plan import make_plan, make_text

for model in (
    GruLmSettings(vocabulary_size=20, hidden_size=6),
    TransformerLmSettings(vocabulary_size=20, model_size=8, head_count=2),
):
    for kind in ({"momentum": 0.9}, {"optimiser": "adam"}, {"precision": "bfloat16"}):
        plan = make_plan(model=model, gradient_clipping_norm=1.0, **kind)
        received = initial_parameters(model, seed=1)
        LocalTrainer(plan).train(received, make_text(50), round_number=1, client_name="a")
print("torch._dynamo" in sys.modules)
"""


@pytest.mark.slow
def test_a_fresh_process_trains_without_loading_the_compiler() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRAINS],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=Path(__file__).parents[3],
    )

    assert done.stdout == "False\n"


class RawNetwork(torch.nn.Module):
    """Compute with w·sqrt(2 / fan-in) in every pass, as the papers write it; 18 and 8 inputs."""

    def __init__(self) -> None:
        super().__init__()
        draws = torch.Generator().manual_seed(1)
        self.wide = torch.nn.Parameter(torch.randn(8, 18, generator=draws))
        self.shift = torch.nn.Parameter(torch.zeros(8))
        self.narrow = torch.nn.Parameter(torch.randn(2, 8, generator=draws))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(values @ (self.wide / 3).t() + self.shift)
        return hidden @ (self.narrow / 2).t()


class EffectiveNetwork(torch.nn.Module):
    """Hold the same weights as they take effect."""

    def __init__(self, raw: RawNetwork) -> None:
        super().__init__()
        self.wide, self.narrow = HeLinear(18, 8), HeLinear(8, 2, bias=False)
        with torch.no_grad():
            self.wide.weight.copy_(raw.wide / 3)
            self.wide.bias.zero_()
            self.narrow.weight.copy_(raw.narrow / 2)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        narrowed: torch.Tensor = self.narrow(torch.tanh(self.wide(values)))
        return narrowed


@pytest.mark.parametrize("clipping_norm", [None, 0.5])
@pytest.mark.parametrize(
    "kind",
    [
        {"optimiser": "adam", "learning_rate": 0.01, "weight_decay": 0.1},
        {"optimiser": "sgd", "learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    ],
)
def test_scaled_layers_train_as_weights_that_are_scaled_in_every_pass(
    kind: dict[str, Any], clipping_norm: float | None
) -> None:
    raw = RawNetwork()
    effective = EffectiveNetwork(raw)
    own: list[torch.optim.Optimizer] = [
        torch.optim.Adam(raw.parameters(), lr=0.01, weight_decay=0.1)
        if kind["optimiser"] == "adam"
        else torch.optim.SGD(raw.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    ]
    names = ("wide.weight", "wide.bias", "narrow.weight")
    present = dict(effective.named_parameters())
    schema = Schema(
        tuple(TensorSpec(name=name, shape=tuple(present[name].shape), layer="") for name in names)
    )
    training = make_plan(**kind, gradient_clipping_norm=clipping_norm).training
    optimiser = Optimiser(effective, schema, training)
    draws = torch.Generator().manual_seed(2)

    for _ in range(6):
        values = torch.randn(5, 18, generator=draws)
        own[0].zero_grad()
        (raw(values) - 1).square().sum().backward()
        if clipping_norm is not None:
            torch.nn.utils.clip_grad_norm_(raw.parameters(), clipping_norm)
        own[0].step()
        (effective(values) - 1).square().sum().backward()
        optimiser.step()

    torch.testing.assert_close(effective.wide.weight, raw.wide / 3)
    torch.testing.assert_close(effective.wide.bias, raw.shift)
    torch.testing.assert_close(effective.narrow.weight, raw.narrow / 2)


def test_adams_first_step_moves_each_effective_weight_by_the_rate_times_its_scale() -> None:
    effective = EffectiveNetwork(RawNetwork())
    before = {name: value.detach().clone() for name, value in effective.named_parameters()}
    schema = Schema(
        tuple(
            TensorSpec(name=name, shape=tuple(value.shape), layer="")
            for name, value in before.items()
        )
    )
    optimiser = Optimiser(
        effective, schema, make_plan(optimiser="adam", learning_rate=0.06).training
    )

    give_gradients(effective, 5.0)
    optimiser.step()

    # sqrt(2 / 18) = 1/3 and sqrt(2 / 8) = 1/2; a bias has no scale.
    for name, moved in (("wide.weight", 0.02), ("narrow.weight", 0.03), ("wide.bias", 0.06)):
        after = dict(effective.named_parameters())[name]
        torch.testing.assert_close(before[name] - after, torch.full_like(after, moved))
