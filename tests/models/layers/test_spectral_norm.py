import pytest
import torch
from torch.testing import assert_close

from models.layers.spectral_norm import normed


def draw(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (1, 5), (5, 1), (6, 6)])
def test_value_and_gradient_are_those_of_the_frameworks_norm(shape: tuple[int, int]) -> None:
    matrix, above = draw(*shape, seed=1), draw(*shape, seed=2)
    leaf = matrix.double().requires_grad_()
    expected = leaf / torch.linalg.matrix_norm(leaf, ord=2)
    expected.backward(above.double())
    assert leaf.grad is not None

    found = normed(matrix)
    gradient = above.clone()
    found.pull_back(gradient)

    assert_close(found.matrix, expected.detach().float())
    assert_close(gradient, leaf.grad.float(), rtol=1e-4, atol=1e-5)


def test_a_matrix_of_zeros_stays_one_and_hands_its_gradient_on() -> None:
    gradient = draw(3, 2, seed=1)
    before = gradient.clone()

    found = normed(torch.zeros(3, 2))
    found.pull_back(gradient)

    assert_close(found.matrix, torch.zeros(3, 2))
    assert_close(gradient, before)
