import math

import pytest
import torch
from torch import Tensor

from models.listening.diagonality import diagonality, straightest


def uniform(steps: int, text: int) -> Tensor:
    return torch.full((steps, text), 1 / text)


def test_the_diagonal_has_one_and_everywhere_has_nothing() -> None:
    assert diagonality(torch.eye(4)) == pytest.approx(1)
    assert diagonality(uniform(4, 4)) == pytest.approx(0)
    # Backwards, nothing is within 0.2 of the diagonal; a quarter of all places is.
    assert diagonality(torch.eye(4).flip(1)) == pytest.approx(-1 / 3)


def test_half_the_attention_on_the_diagonal_has_a_half() -> None:
    half = 0.5 * torch.eye(4) + 0.5 * uniform(4, 4)

    # 0.5 + 0.5 / 4 is near: (0.625 - 0.25) / 0.75.
    assert diagonality(half) == pytest.approx(0.5)


def test_places_at_two_tenths_are_near() -> None:
    # With 5 of each, neighbours are 0.2 apart: 5 + 4 + 4 of 25 places are near.
    beside = torch.eye(5).roll(1, dims=1)
    beside[4] = torch.eye(5)[4]

    assert diagonality(beside) == pytest.approx(1)
    assert diagonality(torch.eye(5).flip(1)) == pytest.approx((1 / 5 - 13 / 25) / (12 / 25))


def test_speed_does_not_matter_while_it_is_even() -> None:
    assert diagonality(torch.eye(8).repeat_interleave(5, dim=0)) == pytest.approx(1)


def test_the_straightest_head_is_found() -> None:
    heads = torch.stack([uniform(4, 4), torch.eye(4), torch.eye(4).flip(1)])

    assert straightest(heads) == 1


@pytest.mark.parametrize(
    ("attention", "message"),
    [
        (uniform(2, 4), "3 steps and 3 characters"),
        (uniform(4, 2), "3 steps and 3 characters"),
        (torch.ones(4, 4), "got 4 steps where it is not"),
        (torch.tensor([[2.0, -1.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]), "got 1 steps"),
        (torch.full((4, 4), math.nan), "got 4 steps where it is not"),
    ],
)
def test_what_is_no_attention_is_refused(attention: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        diagonality(attention)


def test_no_head_is_refused() -> None:
    with pytest.raises(ValueError, match="must have a head"):
        straightest(torch.zeros(0, 4, 4))
