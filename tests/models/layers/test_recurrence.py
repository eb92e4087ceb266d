import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from models.layers.recurrence import run_gru


def make_gru(width: int = 6) -> nn.GRU:
    gru = nn.GRU(5, width, batch_first=True)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in gru.parameters():
            parameter.uniform_(-1, 1, generator=generator)
    return gru


def make_input(batch: int, time: int, size: int = 5) -> Tensor:
    drawn = torch.randn(batch, time, size, generator=torch.Generator().manual_seed(batch + time))
    return drawn.requires_grad_()


def weighted_sum(hidden: Tensor, state: Tensor) -> Tensor:
    """Weigh every element differently, so that a gradient in the wrong place shows."""
    weights = torch.linspace(-1, 2, hidden.numel()).view(hidden.shape)
    return (weights * hidden).sum() + (3 * state * state).sum()


@pytest.mark.parametrize(("batch", "time"), [(1, 1), (1, 7), (4, 1), (3, 20)])
@pytest.mark.parametrize("with_state", [True, False])
def test_states_and_gradients_are_those_of_the_framework(
    batch: int, time: int, *, with_state: bool
) -> None:
    gru, values = make_gru(), make_input(batch, time)
    state = make_input(1, batch, 6) if with_state else None
    sources = [values, *gru.parameters(), *([state] if state is not None else [])]

    expected, expected_state = gru(values, state)
    hidden, last = run_gru(gru, values, state)

    assert_close(hidden, expected, rtol=1e-5, atol=1e-6)
    assert_close(last, expected_state, rtol=1e-5, atol=1e-6)
    assert_close(
        torch.autograd.grad(weighted_sum(hidden, last), sources),
        torch.autograd.grad(weighted_sum(expected, expected_state), sources),
        rtol=1e-4,
        atol=1e-5,
    )


def test_under_autocast_results_stay_near_and_in_float32() -> None:
    gru, values = make_gru(), make_input(8, 30)
    expected, expected_state = gru(values)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden, last = run_gru(gru, values, None)

    # Products in bfloat16 are off by 2^-9 of themselves; the state forgets old errors.
    assert hidden.dtype is last.dtype is torch.float32
    assert_close(hidden, expected, rtol=0, atol=0.05)
    for near, exact in zip(
        torch.autograd.grad(weighted_sum(hidden, last), [values, *gru.parameters()]),
        torch.autograd.grad(weighted_sum(expected, expected_state), [values, *gru.parameters()]),
        strict=True,
    ):
        assert near.dtype is torch.float32
        assert float((near - exact).norm() / exact.norm()) < 0.05


def test_without_gradients_the_states_are_the_same() -> None:
    gru, values = make_gru(), make_input(2, 9)

    with torch.no_grad():
        quiet, _ = run_gru(gru, values, None)

    assert torch.equal(quiet, run_gru(gru, values, None)[0].detach())
