"""The loss over a draw is the whole loss where the draw takes every word, and its Z on average."""

import math

import pytest
import torch

from simulation.starting.sampled_loss import sampled_cross_entropy


def loss_of(draw: int, seed: int, features: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return sampled_cross_entropy(
        features,
        weight,
        torch.tensor([0.0, 0.5, -0.5, 0.25, 1.0]),
        torch.tensor([3, 1])[: len(features)],
        draw=draw,
        generator=torch.Generator().manual_seed(seed),
    )


@pytest.mark.parametrize("draw", [3, 100])
def test_a_draw_of_every_word_gives_the_whole_loss_and_its_gradient(draw: int) -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(2, 4, generator=generator, requires_grad=True)
    weight = torch.randn(5, 4, generator=generator, requires_grad=True)
    bias = torch.tensor([0.0, 0.5, -0.5, 0.25, 1.0])
    whole = torch.nn.functional.cross_entropy(features @ weight.T + bias, torch.tensor([3, 1]))
    expected = torch.autograd.grad(whole, (features, weight))

    loss = loss_of(draw, 1, features, weight)

    torch.testing.assert_close(loss, whole)
    torch.testing.assert_close(torch.autograd.grad(loss, (features, weight)), expected)


def test_the_normaliser_is_right_on_average_over_all_draws() -> None:
    features = torch.ones(1, 1)
    weight = torch.zeros(5, 1)
    # Logits are the biases; row 3 is the target, and a draw takes one of the four others.
    drawn = {round(float(loss_of(1, seed, features, weight)), 5) for seed in range(50)}

    biases = [0.0, 0.5, -0.5, 1.0]
    expected = {round(math.log(math.exp(0.25) + 4 * math.exp(one)) - 0.25, 5) for one in biases}
    assert drawn == expected
    # The mean of the four normalisers is exp(0.25) + sum of exp(one), the whole one.
